package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// evalWithin bounds one Eval whose context has no deadline.
const evalWithin = 30 * time.Second

// Eval runs Erlang expressions inside the broker ("A = 1, A + 1." gives "2") and
// returns the value as Erlang prints it. It takes milliseconds.
func (s *RabbitServer) Eval(ctx context.Context, expressions string) (string, error) {
	if _, err := s.running(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, evalWithin)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", loopback(s.ports[evalPort].number))
	if err != nil {
		return "", fmt.Errorf("reach the broker's eval port: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	request := s.secret + expressions
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return "", fmt.Errorf("send expressions: %w", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return "", fmt.Errorf("await the value: %w", errors.Join(err, context.Cause(ctx)))
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if len(answer) == 0 || answer[0] != 0 {
		return "", fmt.Errorf("the broker raised %s", answer)
	}
	return string(answer[1:]), nil
}

func dial(ctx context.Context, port int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", loopback(port))
	if err != nil {
		return err
	}
	return conn.Close()
}
