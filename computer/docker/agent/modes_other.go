//go:build !amd64 && !arm64

package agent

const (
	architecture = 0
	foreignCalls = 0
)

var legacyModeCalls []modeCall
