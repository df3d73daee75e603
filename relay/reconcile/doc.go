// Package reconcile compares what an outbox has sent with what a consumer has
// processed, which is in its inbox (package inbox), perhaps on another server.
//
// It promises:
//
//   - Exact. Every row of the time range is compared by message id and by the
//     hash of its content, and every difference is reported once.
//   - No false alarm. What was sent within the settle time is not looked at;
//     the outbox is read before the inbox, so that what is processed meanwhile
//     counts; a record without a row in the range is looked up before it is
//     called unknown; and what retention may have removed is not judged, but
//     counted.
//   - Bounded. Memory does not grow with the tables: the outbox's side is sorted
//     by message id through files, the inbox's is read in the order of its key.
//   - It disturbs nobody: short reads, no locks, no lease.
package reconcile
