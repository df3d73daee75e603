package lab

import (
	"fmt"
	"os"
	"strings"
)

// Kind names a server and its version, or a tool.
type Kind string

// The servers that the lab knows.
const (
	MySQL97     Kind = "mysql97"
	MariaDB1011 Kind = "mariadb1011"
	Rabbit310   Kind = "rabbit310"
	Rabbit43    Kind = "rabbit43"
)

// Prometheus is set up for its promtool, see [Promtool]; it is no server of the lab.
const Prometheus Kind = "prometheus"

// recipe says where a server comes from and how to recognise it.
type recipe struct {
	kind     Kind
	title    string
	suite    string   // of the Debian archive
	packages []string // beside them their dependencies, without recommended ones
	program  string   // inside the unpacked folder; may be a glob pattern
	names    []string // of the program, on PATH
	version  string   // what the program says of itself holds this
	tool     bool     // it is run, not started
}

// revision is part of every cache folder's stamp: raise it when the way of
// unpacking changes, so that old folders are made anew.
const revision = 1

var recipes = []recipe{
	{
		kind: MySQL97, title: "MySQL 9.7", suite: "sid",
		packages: []string{"mysql-server-core", "mysql-client-core"},
		program:  "usr/sbin/mysqld", names: []string{"mysqld"}, version: " 9.7.",
	},
	{
		kind: MariaDB1011, title: "MariaDB 10.11", suite: "bookworm",
		packages: []string{"mariadb-server-core", "mariadb-client-core"},
		program:  "usr/sbin/mariadbd", names: []string{"mariadbd", "mysqld"}, version: " 10.11.",
	},
	{
		kind: Rabbit310, title: "RabbitMQ 3.10", suite: "bookworm",
		packages: []string{"rabbitmq-server"},
		program:  rabbitProgram, names: []string{"rabbitmq-server"}, version: "rabbitmq_server-3.10.",
	},
	{
		kind: Rabbit43, title: "RabbitMQ 4.3", suite: "sid",
		packages: []string{"rabbitmq-server"},
		program:  rabbitProgram, names: []string{"rabbitmq-server"}, version: "rabbitmq_server-4.3.",
	},
	{
		kind: Prometheus, title: "promtool 2", suite: "bookworm",
		packages: []string{"prometheus"},
		program:  "usr/bin/promtool", names: []string{"promtool"}, version: "promtool, version 2.", tool: true,
	},
}

const rabbitProgram = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"

// Kinds returns every server that the lab knows.
func Kinds() []Kind {
	var kinds []Kind
	for _, r := range recipes {
		if !r.tool {
			kinds = append(kinds, r.kind)
		}
	}
	return kinds
}

// Promtool is the path of Prometheus' tool that checks and tests rules.
func Promtool() (string, error) {
	p, err := find(Prometheus)
	return p.path, err
}

// versionArgs make a program that is no broker's script tell its version.
func (r recipe) versionArgs() []string {
	if r.tool {
		return []string{"--version"}
	}
	return []string{"--no-defaults", "--version"}
}

// ParseKind is the inverse of Kind's text.
func ParseKind(s string) (Kind, error) {
	r, err := Kind(s).recipe()
	return r.kind, err
}

func (k Kind) recipe() (recipe, error) {
	for _, r := range recipes {
		if r.kind == k {
			return r, nil
		}
	}
	return recipe{}, fmt.Errorf("unknown server %q: the lab knows %v and %s", string(k), Kinds(), Prometheus)
}

// String is the kind's name on a command line.
func (k Kind) String() string { return string(k) }

// IsMariaDB tells MariaDB from MySQL.
func (k Kind) IsMariaDB() bool { return k == MariaDB1011 }

// IsRabbit tells a broker from a database.
func (k Kind) IsRabbit() bool { return k == Rabbit310 || k == Rabbit43 }

// Env is the environment variable that names this server's program (a path)
// or a running server (user:password@host:port) to be used in its place.
func (k Kind) Env() string { return "TOWPATH_LAB_" + strings.ToUpper(string(k)) }

// RunningAddress is the address of the running server that stands in for this
// kind, as user:password@host:port, or "".
func (k Kind) RunningAddress() string {
	if v := os.Getenv(k.Env()); !strings.HasPrefix(v, "/") {
		return v
	}
	return ""
}
