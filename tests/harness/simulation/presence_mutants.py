"""Deliberate faults of what the presence of strangers costs; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["PRESENCE"]

PRESENCE = (
    Mutant(
        "presence-of-a-stranger-is-asked-about",
        "xep_qos.discovery",
        "        self._features.arrived(jid, version)\n",
        '        self._features.arrived(jid, version)\n        self._features.of(jid, "")\n',
        "Presence of a stranger draws no question.",
        by=("no_stranger_is_asked",),
    ),
    Mutant(
        "presence-of-a-stranger-goes-on",
        "xep_qos.presence",
        "return stranger and self._presences.ends_here(xml)",
        "return False",
        "Presence of a stranger ends below slixmpp, which keeps an entry and asks.",
        by=("no_stranger_is_asked", "tables_of_strangers_are_bounded"),
    ),
    Mutant(
        "everybody-is-known",
        "qos.core.message.acquaintance",
        "return bare(sender) != bare(own) and not (policy and policy.names(sender))",
        "return False",
        "Who is neither a contact nor addressed is a stranger.",
        by=("no_stranger_is_asked", "nothing_of_a_stranger_is_kept"),
        seed=8,
    ),
    Mutant(
        "stranger-takes-the-room-of-a-contact",
        "qos.core.two_rooms",
        "room = self.strangers if stranger else self.known",
        "room = self.known",
        "Strangers fill their own room only.",
        by=("nothing_of_a_stranger_is_kept", "facts_of_a_contact_stay"),
    ),
    Mutant(
        "stranger-pushes-a-contact-out",
        "qos.core.two_rooms",
        "            del room[next(iter(room))]\n",
        "            del room[next(iter(room))]\n"
        "            self.known.pop(next(iter(self.known)), None)\n",
        "The newest stranger costs the oldest stranger, and no contact.",
        by=("facts_of_a_contact_stay",),
    ),
    Mutant(
        "room-of-strangers-has-no-end",
        "qos.core.two_rooms",
        "(self._strangers_max if stranger else self._contacts_max)",
        "(len(room) if stranger else self._contacts_max)",
        "The room of strangers is bounded.",
        by=("tables_of_strangers_are_bounded",),
    ),
    Mutant(
        "stranger-crowds-contacts",
        "qos.core.two_rooms",
        "self.crowded |= not stranger",
        "self.crowded = True",
        "However many strangers there are, an absent contact is known to be absent.",
        by=("facts_of_a_contact_stay",),
    ),
    Mutant(
        "stranger-has-many-resources",
        "xep_qos.discovery",
        "_RESOURCES_MAX if stranger else _PRESENT_MAX",
        "_PRESENT_MAX",
        "Of one account of a stranger few resources are remembered.",
        by=("tables_of_strangers_are_bounded",),
        seed=8,
    ),
    Mutant(
        "many-resources-crowd-contacts",
        "xep_qos.discovery",
        "self._crowded |= not stranger and len(resources) >= _PRESENT_MAX",
        "self._crowded |= len(resources) >= min(_PRESENT_MAX, _RESOURCES_MAX)",
        "The resources of a stranger say nothing about those of a contact.",
        by=("facts_of_a_contact_stay",),
        seed=8,
    ),
    Mutant(
        "list-of-a-stranger-counts-for-contacts",
        "xep_qos.capabilities",
        "return features if account in accounts else None",
        "return features",
        "A list is believed of the account alone that has sent it.",
        by=("its_own_list_counts",),
    ),
    Mutant(
        "room-is-entered-by-its-own-word",
        "xep_qos.guard",
        "occupant=self._is_entered(account, to),",
        "occupant=self._is_occupant(account, to),",
        "Presence from a room that we have not entered is that of a stranger.",
        by=("nothing_of_a_stranger_is_kept", "tables_of_strangers_are_bounded"),
    ),
    Mutant(
        "entries-of-strangers-stay",
        "qos.stream.presences",
        "internals.forget_contact(self._xmpp, *oldest)",
        "del oldest",
        "slixmpp keeps a few entries of strangers, if the application wants them.",
        by=("tables_of_strangers_are_bounded",),
        seed=40,
    ),
    Mutant(
        "service-remembers-everybody",
        "qos.core.queue.service",
        "        if not names:\n            return effects\n        by_presence",
        "        self.presence.heard(jid, available=available)\n        by_presence",
        "A queue service remembers who is there of the accounts that work at it.",
        by=("nothing_of_a_stranger_is_kept",),
    ),
)
