// Package lab starts private, real servers for the demo, the tests and the
// benchmarks: MySQL, MariaDB and RabbitMQ, several at a time.
//
// What it promises:
//
//   - Nothing is installed on the machine, no root is needed, and no service
//     that the machine runs is touched. Setup downloads the distribution's own
//     packages into a cache folder and unpacks them there.
//   - A server is private: own data folder, own ports on 127.0.0.1 below the
//     ephemeral range, own sockets. Test processes that run side by side do not
//     meet.
//   - A server dies with the process that started it, however that ends, and
//     its data folder goes with it. Nothing is left running.
//   - What a server was told to commit survives Kill and Start: only what a
//     power failure would need is turned off.
//
// A test uses sub-package labtest. Everything here may be used from several
// goroutines, except that one server's life (Kill, Stop, Start, Pause, Resume,
// Close) belongs to one goroutine at a time.
package lab
