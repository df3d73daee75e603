package main

import (
	"context"
	"errors"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func killBroker(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.rabbit.Kill(); err != nil {
		return err
	}
	pause(ctx, i.hold/2)
	return t.restarted(i, t.stage.rabbit.Start)
}

func pauseBroker(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.rabbit.Pause(); err != nil {
		return err
	}
	pause(ctx, i.hold)
	err := t.stage.rabbit.Resume()
	if err != nil {
		t.abort(err)
	}
	t.ledger.watch(i.fault.name, nil)
	return err
}

func raiseAlarm(ctx context.Context, t *torture, i *injection) error {
	return t.alarm(ctx, i, t.stage.rabbit.SetMemoryAlarm)
}

// raiseDiskAlarm is what a broker does when its disk is full: publishers wait.
func raiseDiskAlarm(ctx context.Context, t *torture, i *injection) error {
	return t.alarm(ctx, i, func(ctx context.Context, raised bool) error {
		call := "rabbit_alarm:clear_alarm({resource_limit, disk, node()})"
		if raised {
			call = "rabbit_alarm:set_alarm({{resource_limit, disk, node()}, []})"
		}
		_, err := t.stage.rabbit.Eval(ctx, call+", rabbit_alarm:get_alarms(), ok.")
		return err
	})
}

func (t *torture) alarm(ctx context.Context, i *injection, set func(context.Context, bool) error) error {
	if err := set(ctx, true); err != nil {
		return err
	}
	pause(ctx, i.hold)
	err := set(context.WithoutCancel(ctx), false)
	if err != nil {
		t.abort(err)
	}
	t.ledger.watch(i.fault.name, nil)
	return err
}

func closeConnections(ctx context.Context, t *torture, i *injection) error {
	t.ledger.watch(i.fault.name, nil)
	return t.stage.rabbit.CloseConnections(ctx, "torture")
}

// unbind takes a table's queue away from its exchange for a while: what is
// published then comes back.
func unbind(ctx context.Context, t *torture, i *injection) error {
	name, key := i.table.label, i.table.binding()
	if err := t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueUnbind(name, key, exchange, nil) }); err != nil {
		return err
	}
	pause(ctx, i.hold)
	return t.healed(i, func() error {
		return t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueBind(name, key, exchange, false, nil) })
	})
}

// fillQueue makes a table's queue reject what comes while nobody consumes.
func fillQueue(ctx context.Context, t *torture, i *injection) error {
	name := i.table.label
	resume := t.consumers[i.table].stall()
	defer resume()
	policy := []string{"-p", t.stage.vhost.Name, "full-" + name}
	set := append([]string{"set_policy"}, append(policy, "^"+name+"$", `{"max-length":3,"overflow":"reject-publish"}`, "--apply-to", "queues")...)
	_, err := t.stage.rabbit.Ctl(ctx, set...)
	pause(ctx, i.hold)
	return errors.Join(err, t.healed(i, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		list, err := t.stage.rabbit.Ctl(ctx, "list_policies", "-p", t.stage.vhost.Name)
		if err != nil {
			return err
		}
		if !strings.Contains(list, "full-"+name) {
			return nil
		}
		_, err = t.stage.rabbit.Ctl(ctx, append([]string{"clear_policy"}, policy...)...)
		return err
	}))
}

// deleteQueue deletes a table's queue and makes it again. What a queue holds
// goes with it, which no relay can help: so it is unbound first, and deleted
// when all that was routed to it has been consumed.
func deleteQueue(ctx context.Context, t *torture, i *injection) error {
	name, key := i.table.label, i.table.binding()
	if err := t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueUnbind(name, key, exchange, nil) }); err != nil {
		return err
	}
	err := t.stage.awaitConsumed(ctx, name)
	if err == nil {
		err = t.stage.onChannel(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
	}
	pause(ctx, i.hold)
	return errors.Join(err, t.healed(i, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := t.stage.declareQueue(name); err != nil {
			return err
		}
		if err := t.stage.rabbit.SaveQueues(ctx); err != nil { // before anything is routed to it
			return err
		}
		return t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueBind(name, key, exchange, false, nil) })
	}))
}

// deleteExchange deletes the exchange that all tables publish to, and makes it
// and its bindings again.
func deleteExchange(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.onChannel(func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) }); err != nil {
		return err
	}
	pause(ctx, i.hold)
	return t.healed(i, t.stage.bind)
}
