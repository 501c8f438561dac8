// A queue by AMQP 1.0 with rhea: a publisher, or its workers.
//
// The program of the child processes of `benchmarks.amqp_clients`. Commands and answers are
// lines of JSON, as qos.testing.child has them; roles and figures are those of
// benchmarks.queue_roles.
'use strict';
const rhea = require('rhea');

const QUEUE = 'bench';
const WORKERS = 4;
// The most items that a worker has at once; as many as those of the other rows.
const CREDIT = 100;
const NUMBER_BYTES = 8;

const container = rhea.create_container();
let connection;
// Whether a worker waits until the broker settles what it has accepted, or settles it at once.
let confirmed;

// The clock that Python calls monotonic.
const now = () => Number(process.hrtime.bigint()) / 1e9;

// Times as base64 of doubles.
const pack = (times) => Buffer.from(Float64Array.from(times).buffer).toString('base64');

const opened = (link, event) => new Promise((resolve, reject) => {
  link.once(event, resolve);
  for (const kind of ['sender_error', 'receiver_error', 'connection_error']) {
    container.once(kind, (context) => reject(new Error(String(
      (context.sender || context.receiver || context.connection).error))));
  }
});

let sender;

let ended = new Map();
let wanted = 0;
let complete = () => {};

const end = (number) => {
  ended.set(number, now());
  if (ended.size === wanted) complete();
};

const commands = {
  connect({ port, user, password, confirmed: waits }) {
    confirmed = waits;
    connection = container.connect({
      host: '127.0.0.1', port, username: user, password, reconnect: false,
    });
  },

  // -- the workers

  async receive() {
    for (let worker = 0; worker < WORKERS; worker += 1) {
      const receiver = connection.open_receiver({
        name: `worker-${worker}`, source: { address: QUEUE, durable: 1 },
        credit_window: CREDIT, autoaccept: false,
      });
      receiver.on('message', ({ message, delivery }) => {
        delivery.number = Number(message.body.content.readBigUInt64BE());
        delivery.update(!confirmed, rhea.message.accepted().described());
        if (!confirmed) end(delivery.number);
      });
      receiver.on('settled', ({ delivery }) => {
        delivery.update(true);
        end(delivery.number);
      });
      await opened(receiver, 'receiver_open');
    }
  },

  async received({ messages }) {
    wanted = messages;
    if (ended.size < messages) await new Promise((resolve) => { complete = resolve; });
    const times = Array.from({ length: messages }, (_, number) => {
      if (!ended.has(number)) throw new Error(`item ${number} has not come`);
      return ended.get(number);
    });
    [ended, wanted] = [new Map(), 0];
    return { ended: pack(times) };
  },

  // -- the publisher

  async send({ window, payload_bytes: payload, seconds }) {
    if (sender === undefined) {
      sender = connection.open_sender({ target: { address: QUEUE, durable: 1 } });
      await opened(sender, 'sender_open');
    }
    const filling = Buffer.alloc(Math.max(payload, NUMBER_BYTES), 'x');
    const given = [], accepted = [];
    let lanes = window;
    const until = now() + seconds;
    const give = () => {
      const body = Buffer.from(filling);
      body.writeBigUInt64BE(BigInt(given.length));
      given.push(now());
      const delivery = sender.send({ body: rhea.message.data_section(body), durable: true });
      delivery.number = given.length - 1;
    };
    await new Promise((resolve, reject) => {
      const settled = ({ delivery }) => {
        const at = now();
        accepted[delivery.number] = at;
        if (at < until) give();
        else if (--lanes === 0) {
          sender.removeListener('accepted', settled);
          resolve();
        }
      };
      sender.on('accepted', settled);
      sender.once('rejected', () => reject(new Error('an item was rejected')));
      for (let lane = 0; lane < window; lane += 1) give();
    });
    return { given: pack(given), ended: pack(accepted) };
  },
};

container.on('disconnected', ({ error }) => {
  console.error(`disconnected: ${error}`);
  process.exit(1);
});

let last = Promise.resolve();
const lines = require('readline').createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const [name, options] = JSON.parse(line);
  last = last.then(async () => {
    let reply;
    try {
      reply = { done: await commands[name](options) || {} };
    } catch (error) {
      console.error(error);
      reply = { failed: String(error), unreachable: false };
    }
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  });
});
// It never outlives the process that has started it.
lines.on('close', () => process.exit(0));
