package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// NewVhost makes an empty vhost of a name not used before, and a user for it.
func (s *RabbitServer) NewVhost(ctx context.Context) (Vhost, error) {
	v := Vhost{Name: unique("vhost"), User: User{unique("user"), unique("secret")}, addr: s.Addr()}
	if s.guard == nil {
		return v, s.foreignVhost(ctx, v)
	}
	_, err := s.Eval(ctx, fmt.Sprintf(`ok = rabbit_vhost:add(%[1]s, %[4]s),
		ok = rabbit_auth_backend_internal:add_user(%[2]s, %[3]s, %[4]s),
		ok = rabbit_auth_backend_internal:set_permissions(%[2]s, %[1]s, <<".*">>, <<".*">>, <<".*">>, %[4]s).`,
		erlBinary(v.Name), erlBinary(v.User.Name), erlBinary(v.Password), actor))
	if err != nil {
		return Vhost{}, fmt.Errorf("make a vhost: %w", err)
	}
	return v, nil
}

// DeleteVhost removes a vhost with all that is in it, and its user.
func (s *RabbitServer) DeleteVhost(ctx context.Context, v Vhost) error {
	if s.guard == nil {
		return s.deleteForeignVhost(ctx, v)
	}
	_, err := s.Eval(ctx, fmt.Sprintf(`rabbit_vhost:delete(%s, %s), rabbit_auth_backend_internal:delete_user(%s, %[2]s).`,
		erlBinary(v.Name), actor, erlBinary(v.User.Name)))
	return err
}

// SetPermissions replaces what the vhost's user may configure, write and read (regular expressions).
func (s *RabbitServer) SetPermissions(ctx context.Context, v Vhost, configure, write, read string) error {
	if s.guard == nil {
		return s.foreignPermissions(ctx, v, configure, write, read)
	}
	_, err := s.Eval(ctx, fmt.Sprintf(`ok = rabbit_auth_backend_internal:set_permissions(%s, %s, %s, %s, %s, %s).`,
		erlBinary(v.User.Name), erlBinary(v.Name), erlBinary(configure), erlBinary(write), erlBinary(read), actor))
	return err
}

// SetMemoryAlarm raises or clears the memory alarm, which blocks every
// connection that publishes. Every connection knows of it when this returns.
func (s *RabbitServer) SetMemoryAlarm(ctx context.Context, raised bool) error {
	call := `rabbit_alarm:clear_alarm({resource_limit, memory, node()})`
	if raised {
		call = `rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})`
	}
	_, err := s.Eval(ctx, call+`,
		rabbit_alarm:get_alarms(), % the alarm handler has passed it on
		[catch rabbit_networking:connection_info(C, [state]) || C <- rabbit_networking:connections()], ok.`)
	return err
}

// CloseConnections closes every client connection as an operator does (reply code 320).
func (s *RabbitServer) CloseConnections(ctx context.Context, reason string) error {
	_, err := s.Eval(ctx, fmt.Sprintf(`[rabbit_networking:close_connection(C, %s) || C <- rabbit_networking:connections()], ok.`, quoted(reason)))
	return err
}

// Connections counts the open client connections of a vhost.
func (s *RabbitServer) Connections(ctx context.Context, v Vhost) (int, error) {
	out, err := s.Eval(ctx, fmt.Sprintf(`length([C || [{vhost, V}] = C <- rabbit_networking:connection_info_all([vhost]), V =:= %s]).`, erlBinary(v.Name)))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// SuspendListeners makes the broker refuse new connections and keep those it has.
func (s *RabbitServer) SuspendListeners(ctx context.Context) error {
	_, err := s.Eval(ctx, `rabbit_maintenance:suspend_all_client_listeners().`)
	return err
}

// ResumeListeners ends SuspendListeners.
func (s *RabbitServer) ResumeListeners(ctx context.Context) error {
	_, err := s.Eval(ctx, `rabbit_maintenance:resume_all_client_listeners().`)
	return err
}

// SuspendQueue makes a queue, classic or quorum, answer nothing: neither
// confirms nor deliveries. ResumeQueue ends it.
func (s *RabbitServer) SuspendQueue(ctx context.Context, v Vhost, queue string) error {
	return s.onQueue(ctx, "sys:suspend", v, queue)
}

// ResumeQueue ends SuspendQueue.
func (s *RabbitServer) ResumeQueue(ctx context.Context, v Vhost, queue string) error {
	return s.onQueue(ctx, "sys:resume", v, queue)
}

// KillQueue crashes a classic queue's process: what it had not confirmed is nacked.
func (s *RabbitServer) KillQueue(ctx context.Context, v Vhost, queue string) error {
	return s.onQueue(ctx, "(fun(P) -> exit(P, kill) end)", v, queue)
}

// SaveQueues makes the broker write down which quorum queues it has. It does so
// by itself a second or two after a declare, and what a queue confirmed before that
// is lost with a crash: a test that declares and then kills calls this between.
func (s *RabbitServer) SaveQueues(ctx context.Context) error {
	_, err := s.Eval(ctx, `[ok = dets:sync(Table) || Table <- dets:all()], ok.`)
	return err
}

// onQueue calls an Erlang function with the queue's process.
func (s *RabbitServer) onQueue(ctx context.Context, function string, v Vhost, queue string) error {
	_, err := s.Eval(ctx, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(%s, queue, %s)),
		P = case amqqueue:get_pid(Q) of {Name, _} -> whereis(Name); Pid -> Pid end,
		%s(P).`, erlBinary(v.Name), erlBinary(queue), function))
	if err != nil {
		return fmt.Errorf("queue %s: %w", queue, err)
	}
	return nil
}

// actor is named in the broker's own events as who did it.
const actor = `<<"lab">>`

// erlBinary writes s as an Erlang binary, quoted as an Erlang string.
func erlBinary(s string) string { return "<<" + quoted(s) + "/utf8>>" }

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
