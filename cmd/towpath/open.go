package main

import (
	"context"
	"database/sql"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

// openState opens the state tables that the configuration names.
func openState(ctx context.Context, config *configs.Config) (*sql.DB, *checkpoint.Store, error) {
	db := checkpoint.Connect(relay.Endpoint(config), checkpoint.Session{IdleTimeout: config.Lease.TTL})
	store, err := checkpoint.Open(ctx, db, config.State.Schema)
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return db, store, nil
}
