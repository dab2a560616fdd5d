package drive

import (
	"context"
	"time"
)

// maxWalks bounds the walks of one kind that go on at once, so that they leave the disk to others.
const maxWalks = 16

// walks has room for the walks of one kind that may go on at once.
type walks chan struct{}

func (w walks) enter(ctx context.Context) (leave func(), err error) {
	select {
	case w <- struct{}{}:
		return func() { <-w }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(patience):
		return nil, unavailable("too many folders are being walked")
	}
}
