//go:build pending

package node

import (
	_ "github.com/coreos/go-oidc/v3/oidc"
	_ "github.com/go-jose/go-jose/v4"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/ory/fosite"
	_ "github.com/ory/fosite/compose"
	_ "github.com/ory/fosite/handler/oauth2"
	_ "github.com/ory/fosite/handler/pkce"
	_ "github.com/prometheus/procfs"
	_ "github.com/wneessen/go-mail"
	_ "gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob"
	_ "golang.org/x/crypto/argon2"
	_ "golang.org/x/oauth2"
	_ "golang.org/x/time/rate"
)
