package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	gometrics "runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// BenchmarkIdentify measures Call.authenticate, including the rate limit, with a cached credential: by one caller, and by one
// caller for each processor, with the same credential or with one credential each. Authentication writes nothing that callers
// with other credentials read, so with one credential each it costs as much as for one caller.
func BenchmarkIdentify(b *testing.B) {
	credentials := &fakeCredentials{hashes: map[string][]byte{}}
	s, err := New(Options{Asker: credentials, Secret: make([]byte, 32), Hosts: []string{"example.com"}})
	if err != nil {
		b.Fatal(err)
	}
	s.options.Limits.Rate, s.options.Limits.Burst = 1e9, 1e9 // the buckets are used, and never empty
	b.Run("alone", func(b *testing.B) {
		defer report(b)()
		c := credentials.with(b, s, credentials.issue())
		for b.Loop() {
			if err := c.authenticate(); err != nil {
				b.Fatal(err)
			}
		}
	})
	parallel := func(b *testing.B, next func() *Call) {
		defer report(b)()
		b.RunParallel(func(pb *testing.PB) {
			c := next()
			for pb.Next() {
				if err := c.authenticate(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("together/same", func(b *testing.B) {
		key := credentials.issue()
		parallel(b, func() *Call { return credentials.with(b, s, key) })
	})
	b.Run("together/different", func(b *testing.B) {
		keys, taken := make([]string, 1024), atomic.Int64{}
		for i := range keys {
			keys[i] = credentials.issue()
		}
		parallel(b, func() *Call { return credentials.with(b, s, keys[taken.Add(1)%int64(len(keys))]) })
	})
}

// report starts to measure the processor time of a request and the time that it waits for locks. end reports both.
func report(b *testing.B) (end func()) {
	b.ReportAllocs()
	used, waited := processorTime(b), lockWait()
	return func() {
		b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64((lockWait()-waited).Nanoseconds())/float64(b.N), "lock-wait-ns/op")
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lockWait returns the time that all goroutines have waited for mutexes so far.
func lockWait() time.Duration {
	sample := []gometrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	gometrics.Read(sample)
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}

// fakeCredentials answers for the entities of credentials, without a delay.
type fakeCredentials struct{ hashes map[string][]byte }

func (h *fakeCredentials) issue() string {
	id := NewID(user.KeyPrefix)
	text, hash := keys.New(KeyStart, id)
	h.hashes[id] = hash
	return text
}

// with returns a request with a credential that is cached.
func (h *fakeCredentials) with(b *testing.B, s *Server, key string) *Call {
	r := httptest.NewRequest(http.MethodGet, "/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	c := &Call{Context: r.Context(), server: s, operation: &operation{}, Response: &Response{}, Request: r}
	if err := c.authenticate(); err != nil {
		b.Error(err)
	}
	return c
}

func (h *fakeCredentials) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	switch c.Message.(type) {
	case *credentialv1.DescribeCredential:
		return &credentialv1.Credential{
			Id: c.Identity, Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", SecretSha256: h.hashes[c.Identity],
		}, nil
	case *userv1.DescribeStanding:
		return &userv1.Standing{}, nil
	}
	return &wirev1.Done{}, nil
}

func (h *fakeCredentials) Settle(context.Context, string, string) error { return nil }
