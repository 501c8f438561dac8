// A publisher and a consumer with rhea: npm install rhea
const [host, port, queue] = process.argv.slice(2);
const { randomUUID } = require('node:crypto');
const container = require('rhea').create_container();
const connection = container.connect({
  host, port, username: 'shop', password: process.env.PASSWORD,
  transport: host === 'localhost' ? 'tcp' : 'tls', reconnect: false,
});
connection.on('disconnected', () => {
  console.error('the connection is lost');
  process.exitCode = 1;
});

const sender = connection.open_sender(queue);
// To send it again after a lost connection, use the same id: the same id and content is
// the same message.
const order = { message_id: randomUUID(), body: 'order 1' };
sender.once('sendable', () => sender.send(order));
sender.on('accepted', () => console.log('on the disk of the service'));
sender.on('rejected', (context) => console.log('refused', context.delivery.remote_state.error));

const receiver = connection.open_receiver(
  { source: queue, credit_window: 10, autoaccept: false });
receiver.on('message', ({ message, delivery }) => {
  console.log(message.body, message.delivery_count || 0);
  delivery.accept();  // or reject({ condition, description }), or modified({ delivery_failed: true })
  setTimeout(() => connection.close(), 200);
});
