package browser

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer"
	atelier "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// chatCommand is the first argument that makes the test program the process of an app.
const chatCommand = "chat"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == chatCommand {
		fmt.Fprintln(os.Stderr, serveChat())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// chatPage connects with a WebSocket, and shows the messages of the connection.
const chatPage = `<!doctype html><html lang="en"><title>Chat</title><h1>Chat</h1><p id="path"></p><p id="said"></p><p id="state"></p>
<script>
document.getElementById('path').textContent = location.pathname + location.search
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket')
socket.onopen = () => socket.send('hello')
socket.onmessage = (m) => { document.getElementById('said').textContent = m.data }
socket.onclose = () => { document.getElementById('state').textContent = 'closed' }
document.cookie = 'own=1; path=/'
</script></html>`

// serveChat serves a page at every path, an echo over WebSockets at /socket, the cookies of the request at /cookies, and at /form a form
// that is sent without a referrer.
func serveChat() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, chatPage)
	})
	mux.HandleFunc("/cookies", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Values("Cookie")) })
	mux.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, `<!doctype html><html lang="en"><title>Form</title><form method="post"><button>Send</button></form><p>`+
			r.Method+` with the origin `+r.Header.Get("Origin")+`</p></html>`)
	})
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, append([]byte("you said "), message...)) != nil {
				return
			}
		}
	})
	return http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Getenv("PORT")), mux)
}

// TestApps runs apps.mjs: an app is launched through signing in, at a deep path, with a WebSocket, until its access ends.
func TestApps(t *testing.T) {
	chromium := findChromium(t)
	s := newAppSite(t)
	alice, carol := s.person("alice", "Alice Liddell"), s.person("carol", "Carol")
	s.workspace(alice, "wonderland", "Wonderland")
	s.workspace(carol, "choir", "The Tuesday choir")
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	api, err := client.New(s.url, alice)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.Exec(ctx, "wonderland", client.ExecRequest{Argv: []string{"mkdir", "chat"}}, io.Discard, io.Discard); err != nil {
		if client.HasCode(err, "forbidden") {
			testmachine.Lacks(t, "this machine cannot isolate processes")
		}
		t.Fatal(err)
	}
	made, err := api.RegisterApp(ctx, "wonderland", client.NewApp{
		Path: "chat", Slug: "chat", Command: computer.ProgramPath + " " + chatCommand, APIScopes: []string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(ctx, "node", "apps.mjs", s.scene(map[string]string{
		"url": s.url, "chromium": chromium, "pictures": os.Getenv("PICTURES"), "app": made.CanonicalURL, "key": alice,
		"alice": s.link("alice"), "carol": s.link("carol"),
	}))
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// newAppSite starts a node with computers that run processes. Its pages and its apps have the same listener.
func newAppSite(t *testing.T) *site {
	front := nodetest.Listen(t)
	n := nodetest.Start(t, node.Start, node.Options{
		Dir: t.TempDir(), HTTP: atelier.Options{Options: server.Options{PublicURL: front.PublicURL(), Limits: server.Limits{RequestTime: longest}}},
		Computers: node.ComputerOptions{Driver: node.LocalDriver},
		Journal:   persistence.Options{CacheBytes: 4 << 20, Partitions: 4}, PendingLimit: longest,
	})
	front.Serve(n.Server)
	return &site{t, front.URL, n, newMailbox()}
}
