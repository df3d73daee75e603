package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// address is where a running server is, and who may use it.
type address struct{ user, password, host string }

// parseAddress reads user:password@host:port.
func parseAddress(s string) (address, error) {
	at := strings.LastIndex(s, "@")
	if at < 0 {
		return address{}, errors.New("the value is neither a path nor user:password@host:port")
	}
	user, password, _ := strings.Cut(s[:at], ":")
	if _, _, err := net.SplitHostPort(s[at+1:]); err != nil {
		return address{}, fmt.Errorf("the part after @ is not host:port: %w", err)
	}
	return address{user, password, s[at+1:]}, nil
}

// foreignMySQL uses the running server at address.
func foreignMySQL(ctx context.Context, opts MySQLOptions, address string) (*MySQLServer, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.Kind.Env(), err)
	}
	s := &MySQLServer{host: &host{kind: opts.Kind}, opts: opts}
	if err := s.openAdmin(a.user, a.password, a.host); err != nil {
		return nil, err
	}
	if err := s.admin.PingContext(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("connect to the server that %s names: %w", opts.Kind.Env(), err)
	}
	return s, nil
}

// foreignRabbit uses the running broker at address.
func foreignRabbit(opts RabbitOptions, address string) (*RabbitServer, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.Kind.Env(), err)
	}
	return &RabbitServer{host: &host{kind: opts.Kind}, opts: opts, addr: a}, nil
}

// manage sends one request to a foreign broker's management plugin.
func (s *RabbitServer) manage(ctx context.Context, method, path string, body any) error {
	variable := s.kind.Env() + "_MANAGEMENT"
	at := os.Getenv(variable)
	if at == "" {
		return fmt.Errorf("%w; set %s to host:port of its management plugin", ErrForeign, variable)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+at+"/api/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.SetBasicAuth(s.addr.user, s.addr.password)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said)
	}
	return nil
}

func (s *RabbitServer) foreignVhost(ctx context.Context, v Vhost) error {
	name, user := url.PathEscape(v.Name), url.PathEscape(v.User.Name)
	return errors.Join(
		s.manage(ctx, "PUT", "vhosts/"+name, struct{}{}),
		s.manage(ctx, "PUT", "users/"+user, map[string]string{"password": v.Password, "tags": ""}),
		s.foreignPermissions(ctx, v, ".*", ".*", ".*"))
}

func (s *RabbitServer) foreignPermissions(ctx context.Context, v Vhost, configure, write, read string) error {
	return s.manage(ctx, "PUT", "permissions/"+url.PathEscape(v.Name)+"/"+url.PathEscape(v.User.Name),
		map[string]string{"configure": configure, "write": write, "read": read})
}

func (s *RabbitServer) deleteForeignVhost(ctx context.Context, v Vhost) error {
	return errors.Join(
		s.manage(ctx, "DELETE", "vhosts/"+url.PathEscape(v.Name), nil),
		s.manage(ctx, "DELETE", "users/"+url.PathEscape(v.User.Name), nil))
}
