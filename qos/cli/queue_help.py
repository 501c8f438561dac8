"""The help texts of `xmpp-qos queue` and its verbs, printed after their options."""

QUEUE = """\
examples:
  xmpp-qos queue serve --component queue.example.org
  xmpp-qos queue create queue.example.org orders --jid boss@example.org
  seq 1000 | xmpp-qos queue publish queue.example.org orders --jid boss@example.org --lines
  xmpp-qos queue stats queue.example.org orders --jid boss@example.org

`xmpp-qos worker` works on the items of a queue. Each verb has a --help of its own.
"""

SERVE = """\
examples:
  export XMPP_QOS_PASSWORD=secret
  xmpp-qos queue serve --component queue.example.org
  xmpp-qos queue serve --component queue.example.org --creators boss@example.org
  xmpp-qos queue serve --jid queue@example.org --creators @example.org,boss@example.com

The server must know a component, with its secret. A service of an account is addressed
by its full JID, such as queue@example.org/queue; the resource is `queue` unless --jid has
one. When the service is ready there is one line on stderr: ready JID.
Accounts of the service's own domain may create queues, or the accounts that --creators
names. The creator of a queue owns it. Nobody else may use the queue until its owner allows
it (`xmpp-qos queue affiliate`, or access_model=open). At the start, rights that everybody
has are listed on stderr.
The service runs until Ctrl-C or SIGTERM, and connects again after the connection is lost.

With --amqp, clients of AMQP 1.0 use the same queues: the address of a source or a target
is the name of the queue. Nobody can log in who is not in the file of --amqp-users, and
passwords are taken only through TLS or from this machine. A user is an account like any
other, and needs the same rights at a queue (`xmpp-qos queue affiliate`).
  xmpp-qos queue amqp-user users.txt shop
  xmpp-qos queue serve --component queue.example.org --amqp 127.0.0.1:5672 \\
    --amqp-users users.txt

With --http, clients of HTTP use the same queues, with users in the same way:
  xmpp-qos queue http-user users.txt shop
  xmpp-qos queue serve --component queue.example.org --http 127.0.0.1:8080 \\
    --http-users users.txt

Both are served from the start, with a line amqp://HOST:PORT or http://HOST:PORT on stderr,
and go on while the XMPP server is away. It is tried again until it is there, whatever
--connect-timeout says.
  curl -u shop -d 'order 1' http://127.0.0.1:8080/queues/orders/messages
"""

AMQP_USER = """\
examples:
  xmpp-qos queue amqp-user users.txt shop
  echo "$SECRET" | xmpp-qos queue amqp-user users.txt boss@example.org
  xmpp-qos queue amqp-user users.txt shop --remove

The password is asked for on a terminal, or read from the first line of stdin. The user
`shop` of the service queue.example.org is the account shop@queue.example.org, to which an
owner gives rights at queues. A JID is that account itself, with the rights that it has by
XMPP. An existing user gets the new password.
"""

HTTP_USER = """\
examples:
  xmpp-qos queue http-user users.txt shop
  xmpp-qos queue http-user users.txt till --token
  xmpp-qos queue http-user users.txt shop --remove

The password is asked for on a terminal, or read from the first line of stdin. With --token,
a new token is printed instead: {"name": "till", "token": "…"}; a client sends it as
`Authorization: Bearer TOKEN`. The user `shop` of the service queue.example.org is the
account shop@queue.example.org, to which an owner gives rights at queues. A JID is that
account itself, with the rights that it has by XMPP. An existing user gets the new
password or token.
"""

CREATE = """\
example:
  xmpp-qos queue create queue.example.org orders --jid boss@example.org \\
    --set lock_timeout=30 --set max_deliveries=3
  xmpp-qos queue create queue.example.org letters --jid boss@example.org
  xmpp-qos queue create queue.example.org jobs --jid boss@example.org \\
    --set dead_letter_node=letters
  xmpp-qos queue create queue.example.org prices --jid boss@example.org --topic
  xmpp-qos queue create queue.example.org prices-audit --jid bee@example.org \\
    --from prices --set "selector=currency = 'EUR'"

Prints the name of the queue: {"node": "orders"}. Only its owner may use the queue, until
other accounts are made members or publishers (`xmpp-qos queue affiliate`). A
dead_letter_node must exist before it is named. If you own a queue of this name with the same
configuration, nothing is changed and the exit status is 0.
A topic copies each item into every queue that was created --from it, in the commit that
publishes it. A member of the topic may create such a queue and owns it; its workers work
on its copies. It is deleted with the topic. If it is full, it misses items, and counts them
(`queue stats`: missed).
"""

CONFIGURE = """\
examples:
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org --set ttl=3600

Without --set it prints the configuration, as one JSON object. Fields that are not set stay
as they are; present locks keep their time. A dead_letter_node is shown while it is in
force: it exists, and the account that set it still owns this queue and may publish to it.
"""

DELETE = """\
examples:
  xmpp-qos queue delete queue.example.org orders --jid boss@example.org
  xmpp-qos queue delete queue.example.org news --jid boss@example.org --with-queues

The queues that copy from a topic, whoever has made them, are deleted with it. So a topic
that has such queues is deleted only with --with-queues, or if you say so on the terminal.
"""

PUBLISH = """\
examples:
  xmpp-qos queue publish queue.example.org orders --jid boss@example.org \\
    --payload '<order xmlns="urn:example:shop" number="7"/>' --priority 9 \\
    --property color=red --property n=7
  xmpp-qos queue publish queue.example.org orders --jid boss@example.org \\
    --json '{"number": 7}'
  seq 1000 | xmpp-qos queue publish queue.example.org orders --jid boss@example.org --lines

With --json the payload of an item is <json xmlns='urn:xmpp:json:0'>…</json>, with --text
and --lines <text xmlns='xmpp-qos:text:0'>…</text>. A worker in Python reads them by
job.json() and job.text(), and a command with `worker --content`.
For each item that is in the queue, on disk, there is one line on stdout; with --lines it
has `line`:
  {"id": "…", "line": 1}
It has "repeated": true if the service knew the item before: from an earlier run, or from an
attempt without an answer.
An item without an --id gets a random one. A publish without an answer is repeated under
the same id, so that the item is in the queue once. Many lines go out together, and later
lines may overtake those that are repeated.
A refused line is named on stderr, and the exit status is 1. If a line is refused because
of its own content, the lines after it are still published. If none can be published any
more (no such queue, not allowed, the queue is full), the command ends.
"""

BROWSE = """\
examples:
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org --state dead --max 5

A table on a terminal, without payloads, properties and history; else one JSON object a line
with all of them. The order is that of delivery as far as it is known.
"""

STATS = """\
example:
  xmpp-qos queue stats queue.example.org orders --jid boss@example.org

Prints one JSON object, on a terminal a line for each number of it: the numbers of items
that are available, acquired, delayed and dead, the number of items ever accepted, the
subscribers, and oldest_seconds, the age of the oldest item that is not done (null: there is
none). A service with --http adds the push subscribers that are enabled or disabled, and the
attempts to push since its start, by what came of them: push_attempts_accepted, rejected,
released (the target was busy), failed, unsent (there was no connection), and disabled
(nothing more is pushed there).
"""

LIST = """\
example:
  xmpp-qos queue list queue.example.org --jid boss@example.org

A table on a terminal, else one JSON object a line, for each queue or topic that the service
shows to this account: its name as `node`, and, if this account may see them, its `node_type`
(queue or topic) and the numbers of `queue stats`. The table has the most important ones.
"""

WATCH = """\
examples:
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org --interval 60 \\
    >> orders.jsonl

One JSON object a line: the time, and the numbers of `queue stats`. The command runs until
Ctrl-C, or until --count lines are printed; it connects again after a lost connection.
"""

PURGE = """\
example:
  xmpp-qos queue purge queue.example.org orders --jid boss@example.org
"""

AFFILIATE = """\
examples:
  xmpp-qos queue affiliate queue.example.org orders --jid boss@example.org
  xmpp-qos queue affiliate queue.example.org orders --jid boss@example.org \\
    shop@example.org=publisher bee@example.org=member
  xmpp-qos queue affiliate queue.example.org orders --jid boss@example.org \\
    @workers.example.org=member

A domain stands for all its accounts that have no affiliation of their own. Without any JID
it lists the affiliations: a table on a terminal, else one JSON object a line. An owner may
do everything, a publisher may publish and work, publish-only may publish and see nothing, a
member may work. An outcast may do nothing, and loses the items that it holds.
"""

DEAD = """\
examples:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
"""

DEAD_LIST = """\
example:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org

A table on a terminal, else one JSON object a line with payload, properties and history too;
reason and history say what happened. Items that were moved to the dead_letter_node of the
queue are listed too, under their former id; and for a queue that is itself a
dead_letter_node, those that were moved there, with their origin.
"""

DEAD_REQUEUE = """\
examples:
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders 3f2c… --jid boss@example.org

NODE is the queue where the items died, not its dead_letter_node. Prints {"id": …} for each
requeued item. Its former failures do not count any more.

Without ids all are requeued, fifty at a time, so that nobody waits for it. Stopped in the
middle, the rest stays dead, and the same command goes on. What dies again meanwhile is not
requeued again. Left as they are: items whose id is in use again, and those that a worker
of the dead_letter_node has.
"""

#: Name, description, and the end of the help.
