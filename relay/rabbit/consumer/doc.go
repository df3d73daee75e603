// Package consumer connects an [inbox.Inbox] to RabbitMQ by amqp091: it
// declares the queues that retries and isolation need, consumes, publishes
// copies with confirms, and connects again after an outage.
//
// What it promises is the inbox's: a copy counts as sent once the broker has
// confirmed it and not returned it; nothing is requeued; an outage of the
// broker burns no try. It may be used together with the relay or without it.
package consumer
