package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/http/server"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A Member is a node that serves on the loopback interface, with one person and one workspace.
type Member struct {
	Node      *node.Node
	Address   string
	Key       string
	Slug      string
	Workspace string
	// Registry has the node's metrics. SampleEvery is the interval between samples of its running computers.
	Registry    *prometheus.Registry
	SampleEvery time.Duration

	dir    string
	served chan error
}

// StartMember starts a node over a data directory, which it creates if necessary. The limits of requests and streams of one
// client are off, because the clients of a benchmark share one credential.
func StartMember(dir string) (*Member, error) { return startSampling(dir, entitycomputer.SampleEvery) }

// startSampling is StartMember with another interval between samples of running computers.
func startSampling(dir string, every time.Duration) (*Member, error) {
	return startWith(dir, node.Options{SampleEvery: every})
}

// startWith is StartMember with further options.
func startWith(dir string, o node.Options) (*Member, error) {
	limits := server.Limits{Rate: -1, Streams: 20_000, CredentialStreams: 20_000, Connections: 40_000}
	registry := prometheus.NewRegistry()
	o.Dir, o.HTTP.Limits, o.Registry = dir, limits, registry
	n, err := node.Start(context.Background(), o)
	if err != nil {
		return nil, err
	}
	m := &Member{Node: n, Slug: "bench", Registry: registry, SampleEvery: o.SampleEvery, dir: dir, served: make(chan error, 1)}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	m.Address = l.Addr().String()
	go func() { m.served <- n.Server.Serve(l) }()
	if err := m.enrol(); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// NewMember starts a node that is stopped with the benchmark.
func NewMember(b testing.TB, dir string) *Member {
	m, err := StartMember(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Stop(); err != nil {
			b.Error(err)
		}
	})
	return m
}

// Stop stops the node.
func (m *Member) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return m.Node.Stop(ctx)
}

// enrol creates the person and the workspace, or issues a further key if the person exists.
func (m *Member) enrol() error {
	const person = `{"email":"bench@example.com","name":"Bench"}`
	var made struct{ Key, WorkspaceID string }
	err := send(m.Node.Server.Admin(), "/admin/users", "", person, &made)
	if err == nil {
		m.Key = made.Key
		err = send(m.Node.Server, "/v1/workspaces", m.Key, `{"slug":"bench","name":"Bench"}`, &made)
		m.Workspace = made.WorkspaceID
		return err
	}
	if err := send(m.Node.Server.Admin(), "/admin/keys", "", `{"email":"bench@example.com"}`, &made); err != nil {
		return err
	}
	m.Key = made.Key
	return nil
}

func send(h http.Handler, path, key, body string, into any) error {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewBufferString(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Body)
	if w.Code >= 300 {
		return fmt.Errorf("%s: %d %s", path, w.Code, answer)
	}
	return json.Unmarshal(answer, into)
}

// Request returns a request below the workspace's file activity, as a client sends it.
func (m *Member) Request(rest string) []byte {
	return fmt.Appendf(nil, "GET /v1/ws/%s/file-activity%s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n\r\n",
		m.Slug, rest, m.Key)
}

// Record records operations through the workspace's actor.
func (m *Member) Record(operations ...*activityv1.Operation) error {
	_, err := m.Node.Router.Ask(context.Background(), record(m.Workspace, operations...))
	return err
}

func record(workspace string, operations ...*activityv1.Operation) entity.Command {
	return entity.Command{
		Kind: entity.KindActivity, Identity: workspace, Principal: entity.Platform(),
		Message: &activityv1.Record{Operations: operations},
	}
}
