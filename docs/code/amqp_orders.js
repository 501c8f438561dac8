// A publisher and a consumer with rhea: npm install rhea
const [host, port, queue] = process.argv.slice(2);
const container = require('rhea').create_container();
const connection = container.connect({
  host, port, username: 'shop', password: process.env.PASSWORD,
  transport: host === 'localhost' ? 'tcp' : 'tls',
});

const sender = connection.open_sender(queue);
sender.once('sendable', () => sender.send({ message_id: 'order-1', body: 'order 1' }));
sender.on('accepted', () => console.log('on the disk of the service'));
sender.on('rejected', (context) => console.log('refused', context.delivery.remote_state.error));

const receiver = connection.open_receiver(
  { source: queue, credit_window: 10, autoaccept: false });
receiver.on('message', ({ message, delivery }) => {
  console.log(message.message_id, message.body, message.delivery_count || 0);
  delivery.accept();  // or reject({ condition, description }), or modified({ delivery_failed: true })
  setTimeout(() => connection.close(), 200);
});
