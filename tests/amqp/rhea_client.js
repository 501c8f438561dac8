// AMQP 1.0 by rhea: does what the JSON of its one argument says, and prints JSON lines.
const container = require('rhea').create_container();
const given = JSON.parse(process.argv[2]);
const count = given.count || 1;
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

const connection = container.connect(Object.assign({
  host: '127.0.0.1', port: given.port, username: given.user, password: given.password || 'secret',
  reconnect: false, container_id: given.container || 'rhea',
}, given.connect || {}));

const told = (error) => error && { condition: error.condition, description: error.description };
for (const event of ['connection_error', 'session_error', 'sender_error', 'receiver_error']) {
  container.on(event, (context) => {
    const at = context.sender || context.receiver || context.session || context.connection;
    say({ event, error: told(at.error) });
  });
}
container.on('disconnected', (context) => {
  if (context.error && !given.killed) say({ event: 'disconnected', error: String(context.error) });
  if (given.killed) process.reallyExit(0);
});
// The connection stays until our input ends, or until the gateway ends it.
if (given.stays) {
  process.stdin.on('end', () => connection.close());
  process.stdin.resume();
  for (const event of ['connection_close', 'disconnected']) {
    container.on(event, () => process.stdin.destroy());
  }
}
// What has been sent before is on its way before the close.
const close_in = (ms) => given.stays || setTimeout(() => connection.close(), ms);
container.on('sender_close', (context) => given.dynamic || given.nodes || context.connection.close());
container.on('receiver_close', (context) => given.detach || context.connection.close());

const works = {
  // Sends `count` messages, and prints the outcome of each.
  send() {
    let sent = 0, settled = 0;
    const sender = connection.open_sender(given.sender || { target: { address: given.node } });
    const go = () => {
      while (sender.sendable() && sent < count) {
        const message = Object.assign({ message_id: given.prefix ? given.prefix + sent : undefined,
          body: 'body ' + sent }, given.message || {});
        if (given.body_bytes) message.body = 'x'.repeat(given.body_bytes);
        sender.send(message);
        sent += 1;
      }
      // What is settled already has no outcome.
      if (given.linger && sent === count) close_in(given.linger);
    };
    container.on('sendable', go);
    for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
      container.on(outcome, (context) => {
        const state = context.delivery.remote_state;
        if (!given.quiet) say({ outcome, error: told(state.error) });
      });
    }
    container.on('settled', () => {
      settled += 1;
      if (settled === count) { if (given.quiet) say({ settled }); connection.close(); }
    });
  },

  // Sends one message on a session of its own to each of `nodes`, by links of one name.
  // Closes when the first link was stolen, and the last message is accepted.
  'two of a name'() {
    let stolen = false, accepted = false;
    const ended = () => { if (stolen && accepted) connection.close(); };
    container.on('sender_error', () => { stolen = true; ended(); });
    given.nodes.forEach((node, number) => {
      const session = connection.create_session();
      session.begin();
      const sender = session.open_sender({ name: 'out', target: { address: node } });
      sender.once('sendable', () => sender.send({ body: node }));
      sender.on('accepted', () => {
        say({ accepted: node });
        accepted ||= number === given.nodes.length - 1;
        ended();
      });
    });
  },

  // Receives `count` messages; `outcomes` says what becomes of each, 'accept' by default.
  // With `tell_settled` it closes when as many are settled by the gateway.
  receive() {
    let received = 0, settled = 0;
    const credit = given.credit === undefined ? 10 : given.credit;
    if (given.selector) {
      const filter = require('rhea').filter.selector(given.selector);
      given.receiver = { source: Object.assign({ address: given.node, filter }, given.source || {}) };
    }
    const receiver = connection.open_receiver(Object.assign({
      source: { address: given.node }, credit_window: credit, autoaccept: false, autosettle: true,
    }, given.receiver || {}));
    container.on('message', (context) => {
      const m = context.message;
      if (!given.quiet) {
        say({ id: m.message_id, body: m.body, count: m.delivery_count || 0,
          first: m.first_acquirer, durable: m.durable, priority: m.priority, ttl: m.ttl,
          annotations: m.message_annotations, type: m.content_type });
      }
      const outcome = (given.outcomes || {})[received] || given.outcome || 'accept';
      received += 1;
      const delivery = context.delivery;
      const settle = {
        accept: () => delivery.accept(),
        release: () => delivery.release(),
        reject: () => delivery.reject({ condition: 'shop:bad', description: 'no' }),
        fail: () => delivery.modified({ delivery_failed: true }),
        annotate: () => delivery.modified({ delivery_failed: true,
          message_annotations: { 'x-opt-tries': given.tries || 1 } }),
        'not here': () => delivery.modified({ undeliverable_here: true }),
        nothing: () => {},
      }[outcome];
      // rhea 3.0.5 gives the second of two deliveries the outcome of the first, if both are
      // settled in one turn of its loop.
      if (given.outcomes) setTimeout(settle, 5 * received);
      else settle();
      if (received === count && given.detach) {
        setTimeout(() => receiver.detach(), 300);
        if (given.session_ends) container.on('receiver_close', () => receiver.session.close());
      }
      if (received === count && given.die) process.reallyExit(0);
      if (received === count && given.close) setTimeout(() => receiver.close(), 300);
      if (received === count && !given.tell_settled) close_in(given.linger || 100);
    });
    container.on('settled', (context) => {
      if (!given.tell_settled) return;
      say({ settled: true, state: String(context.delivery.remote_state && context.delivery.remote_state.constructor.composite_type || '') });
      settled += 1;
      if (settled === count) connection.close();
    });
    if (given.dynamic) {
      container.on('receiver_open', () => {
        const { address, dynamic, dynamic_node_properties: p } = receiver.source;
        say({ address, dynamic, properties: Object.keys(p || {}),
          lifetime: p && p['lifetime-policy'] && p['lifetime-policy'].descriptor.value });
        const sender = connection.open_sender(address);
        sender.once('sendable', () => sender.send({ body: 'to myself' }));
        if (given.close_first) sender.on('accepted', () => sender.close());
      });
    }
    container.on('receiver_drained', () => {
      say({ drained: true });
      close_in(given.linger || 100);
    });
    if (given.tell_ends) {
      for (const event of ['receiver_close', 'session_close']) {
        container.on(event, () => say({ event }));
      }
    }
    if (given.tell_open) {
      container.on('receiver_open', () => {
        const source = receiver.source;
        say({ filter: Object.keys(source.filter || {}), mode: source.distribution_mode,
          outcomes: source.outcomes, durable: source.durable, expiry: source.expiry_policy,
          timeout: source.timeout });
      });
    }
    if (given.tell_unsettled) {
      container.on('receiver_open', () => {
        const { unsettled } = receiver.remote.attach;
        say({ map: Boolean(unsettled), unsettled: Object.keys(unsettled || {}).length });
      });
    }
    if (given.once) {
      // Credit that is not renewed as messages come.
      container.on('receiver_open', () => receiver.add_credit(given.once));
    }
    if (given.drain) {
      container.on('receiver_open', () => { receiver.drain_credit(); receiver.add_credit(given.drain); });
    }
  },
};
works[given.what]();
