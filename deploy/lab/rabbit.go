package lab

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// RabbitOptions say how a broker runs.
type RabbitOptions struct {
	Kind    Kind     // Rabbit310 or Rabbit43
	Config  []string // further lines of rabbitmq.conf, as "consumer_timeout = 60000"
	TLS     bool     // a second listener with Certificates of its own; client certificates are checked, not demanded
	Plugins []string // as "rabbitmq_management"; its ports are one's own to configure
}

// RabbitServer is a broker of one's own.
type RabbitServer struct {
	*host
	opts   RabbitOptions
	prog   program
	addr   address
	epmd   *process // Erlang's port mapper; its own, so that none is left behind
	secret string   // of the broker's eval port
	certs  *Certificates
}

// The ports of a broker.
const (
	amqpPort = iota
	distPort
	epmdPort
	evalPort
	amqpsPort
	rabbitPorts
)

// StartRabbit starts an empty broker and returns when it takes connections.
// Close it.
func StartRabbit(ctx context.Context, opts RabbitOptions) (*RabbitServer, error) {
	if !opts.Kind.IsRabbit() {
		return nil, fmt.Errorf("%s is not a broker", opts.Kind)
	}
	if running := opts.Kind.RunningAddress(); running != "" {
		return foreignRabbit(opts, running)
	}
	prog, err := find(opts.Kind)
	if err != nil {
		return nil, err
	}
	h, err := newHost(opts.Kind, rabbitPorts)
	if err != nil {
		return nil, err
	}
	s := &RabbitServer{
		host: h, opts: opts, prog: prog, secret: rand.Text(),
		addr: address{"guest", "guest", loopback(h.ports[amqpPort].number)},
	}
	if err := s.begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

//go:embed eval.erl
var evalServer []byte

func (s *RabbitServer) begin(ctx context.Context) error {
	if err := os.WriteFile(s.file("eval.erl"), evalServer, 0o644); err != nil {
		return err
	}
	if s.opts.TLS {
		var err error
		if s.certs, err = NewCertificates(s.file("tls")); err != nil {
			return err
		}
	}
	return s.Start(ctx)
}

// Start brings a killed or stopped broker back, on the same data and address.
func (s *RabbitServer) Start(ctx context.Context) error {
	if err := s.stopped(); err != nil {
		return err
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	if err := s.startEpmd(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.prog.title, err)
	}
	p, err := startProcess(s.dir, s.logFile(), s.environment(), s.prog.path)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.prog.title, err)
	}
	s.proc = p
	if err := s.guard.watch(p.pid(), s.epmd.pid()); err != nil {
		return err
	}
	err = p.awaitReady(ctx, s.booted)
	if err == nil {
		err = s.awaitLeaders(ctx)
	}
	if err != nil {
		_ = s.Kill()
		return fmt.Errorf("start %s: %w", s.prog.title, err)
	}
	return nil
}

// booted fails until the broker has started all its listeners.
func (s *RabbitServer) booted(ctx context.Context) error {
	is, err := s.Eval(ctx, `rabbit:is_running() andalso rabbit:is_booted(node()).`)
	if err == nil && is != "true" {
		err = fmt.Errorf("booted: %s", is)
	}
	return err
}

// electedWithin bounds how long a quorum queue may be without a leader after a start.
const electedWithin = 20 * time.Second

// awaitLeaders waits until every quorum queue has a leader and can be used.
func (s *RabbitServer) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, electedWithin)
	defer cancel()
	var leaderless string
	err := poll(ctx, func() (bool, error) {
		names, err := s.Eval(ctx, `[Name || Q <- rabbit_amqqueue:list(), {Name, _} <- [amqqueue:get_pid(Q)], ra_leaderboard:lookup_leader(Name) =:= undefined].`)
		if err == nil {
			leaderless = names
		} else if ctx.Err() == nil {
			return false, err
		}
		return leaderless == "[]", nil
	})
	if err != nil {
		return fmt.Errorf("quorum queues without a leader: %s (the broker forgets one that was declared moments before a Kill: see SaveQueues): %w", leaderless, err)
	}
	return nil
}

// startEpmd starts Erlang's port mapper in the foreground, unless it still
// runs: the broker would otherwise start one that stays behind.
func (s *RabbitServer) startEpmd(ctx context.Context) error {
	if s.epmd != nil && !s.epmd.exited() {
		return nil
	}
	p, err := startProcess(s.dir, s.file("epmd.log"), s.environment(), s.erlang("epmd"), "-port", s.ports[epmdPort].String(), "-address", "127.0.0.1")
	if err != nil {
		return err
	}
	s.epmd = p
	if err := s.guard.watch(p.pid()); err != nil {
		return err
	}
	return p.awaitReady(ctx, func(ctx context.Context) error { return dial(ctx, s.ports[epmdPort].number) })
}

func (s *RabbitServer) writeConfig() error {
	lines := s.opts.Config
	if c := s.certs; c != nil {
		lines = append([]string{
			"listeners.ssl.1 = " + loopback(s.ports[amqpsPort].number),
			"ssl_options.cacertfile = " + c.CA,
			"ssl_options.certfile = " + c.Server.Cert,
			"ssl_options.keyfile = " + c.Server.Key,
			"ssl_options.verify = verify_peer",
			"ssl_options.fail_if_no_peer_cert = false",
		}, lines...)
	}
	config := strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(s.file("rabbitmq.conf"), []byte(config), 0o644); err != nil {
		return err
	}
	plugins := "[" + strings.Join(s.opts.Plugins, ",") + "].\n"
	return os.WriteFile(s.file("enabled_plugins"), []byte(plugins), 0o644)
}

// environment is the broker's and its tools'. Nothing of the machine's own
// RabbitMQ configuration is read.
func (s *RabbitServer) environment() []string {
	env := []string{
		"HOME=" + s.dir,
		"ERL_EPMD_PORT=" + s.ports[epmdPort].String(),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=lab" + s.ports[amqpPort].String() + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + s.ports[amqpPort].String(),
		"RABBITMQ_DIST_PORT=" + s.ports[distPort].String(),
		"RABBITMQ_CONF_ENV_FILE=" + s.file("none"),
		"RABBITMQ_CONFIG_FILE=" + s.file("rabbitmq"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + s.file("none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.file("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + s.file("data"),
		"RABBITMQ_LOG_BASE=" + s.file("logs"),
		"RABBITMQ_LOGS=-",
		"RUNNING_UNDER_SYSTEMD=true", // the script becomes the broker, in place of waiting for it
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} -run file eval " + s.file("eval.erl"),
		"TOWPATH_LAB_EVAL_PORT=" + s.ports[evalPort].String(),
		"TOWPATH_LAB_EVAL_SECRET=" + s.secret,
	}
	if s.prog.root != "" {
		env = append(env, "PATH="+filepath.Join(s.prog.root, "usr/lib/erlang/bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	return env
}

// erlang is the path of one of Erlang's own programs.
func (s *RabbitServer) erlang(name string) string {
	if s.prog.root == "" {
		return name
	}
	return filepath.Join(s.prog.root, "usr/lib/erlang/bin", name)
}

func (s *RabbitServer) file(name string) string { return filepath.Join(s.dir, name) }

// Restart stops the broker and starts it with the changed options. Its kind stays.
func (s *RabbitServer) Restart(ctx context.Context, change ...func(*RabbitOptions)) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	for _, f := range change {
		f(&s.opts)
	}
	return s.Start(ctx)
}

// Close ends the broker and removes its data. A foreign broker stays.
func (s *RabbitServer) Close() error {
	if s.epmd != nil {
		s.epmd.kill()
	}
	return s.close()
}

// Certificates are the broker's, nil without the option TLS.
func (s *RabbitServer) Certificates() *Certificates { return s.certs }

// TLSAddr is host:port of the AMQPS listener, "" without the option TLS.
func (s *RabbitServer) TLSAddr() string {
	if s.certs == nil {
		return ""
	}
	return loopback(s.ports[amqpsPort].number)
}

// Addr is host:port of the AMQP listener.
func (s *RabbitServer) Addr() string { return s.addr.host }

// URL is the administrator's AMQP address of vhost "/".
func (s *RabbitServer) URL() string {
	return Vhost{Name: "/", User: User{s.addr.user, s.addr.password}, addr: s.Addr()}.URL()
}

// Ctl runs rabbitmqctl and returns what it printed. It takes a second: Eval is faster.
func (s *RabbitServer) Ctl(ctx context.Context, args ...string) (string, error) {
	if _, err := s.running(); err != nil {
		return "", err
	}
	ctl := filepath.Join(filepath.Dir(s.prog.path), "rabbitmqctl")
	cmd := exec.CommandContext(ctx, ctl, append([]string{"--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), s.environment()...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", args[0], err, lastLines(string(out), 8))
	}
	return string(out), nil
}

// Vhost is an empty virtual host and its own user, who may do everything in it.
type Vhost struct {
	Name string
	User
	addr string
}

// URL is the vhost's AMQP address, user and password included.
func (v Vhost) URL() string { return v.URLAt(v.addr) }

// URLAt is URL for another address of the same broker, such as a Proxy's.
func (v Vhost) URLAt(addr string) string { return v.urlAt("amqp", addr) }

// TLSURLAt is URLAt over TLS, for the broker's TLSAddr or a Proxy to it.
func (v Vhost) TLSURLAt(addr string) string { return v.urlAt("amqps", addr) }

func (v Vhost) urlAt(scheme, addr string) string {
	return scheme + "://" + url.UserPassword(v.User.Name, v.Password).String() + "@" + addr + "/" + url.PathEscape(v.Name)
}
