package http

import "context"

// Directory tells which people and workspaces there are.
type Directory interface {
	// Owners are those who have rows in a list, in an order that lasts: at most limit of them, after one of them. None:
	// there are no more. Errors: *entity.Error.
	Owners(ctx context.Context, list, after string, limit int) ([]string, error)
}

// emptyDirectory knows nobody.
type emptyDirectory struct{}

func (emptyDirectory) Owners(context.Context, string, string, int) ([]string, error) { return nil, nil }
