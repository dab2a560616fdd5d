package http

import (
	"context"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Directory tells which people and workspaces there are. It reads what is recorded, wakes no entity and asks for no
// access: it is for operators.
type Directory interface {
	// Owners are those who have rows in a list, in an order that lasts: at most limit of them, after one of them. None:
	// there are no more. Errors: *entity.Error.
	Owners(ctx context.Context, list, after string, limit int) ([]string, error)
	// Rows is a page of one owner's list. Errors: *entity.Error.
	Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error)
}

// emptyDirectory knows nobody.
type emptyDirectory struct{}

func (emptyDirectory) Owners(context.Context, string, string, int) ([]string, error) { return nil, nil }

func (emptyDirectory) Rows(context.Context, string, *wirev1.List) (*wirev1.Page, error) {
	return &wirev1.Page{}, nil
}
