package apps

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// viteCommand starts the development server as an app does: at the port that the platform has chosen, or not at all.
const viteCommand = "npx vite --port $PORT --strictPort --host 127.0.0.1"

// newShop returns a site with the sources and the packages of the Vite app in the folder "shop" of its drive.
func newShop(t *testing.T, edgeHost string) *site {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node_modules", "vite")); err != nil {
		testmachine.Lacks(t, "npm ci in tests/apps has installed no vite")
	}
	s := newSite(t, edgeHost)
	s.requireProgram("node")
	s.requireProgram("npx")
	s.write(filepath.Join("testdata", "vite"), "shop")
	// npm has linked the programs of the packages, and WebDAV cannot: the packages are written as an install command writes them.
	s.check(os.CopyFS(s.onDisk("shop/node_modules"), os.DirFS("node_modules")))
	return s
}

// A hotMessage is a message of the development server to its pages.
type hotMessage struct {
	Type    string
	Updates []struct {
		Type, Path, AcceptedPath string
		Timestamp                int64
	}
}

// wsToken is the token without which Vite refuses WebSockets, in the module that pages load.
var wsToken = regexp.MustCompile(`wsToken = "([^"]+)"`)

// hot opens the WebSocket of a page of the app, and reads the first message.
func (s *site) hot(address string) *websocket.Conn {
	s.Helper()
	_, module := s.get(address + "/@vite/client")
	token := wsToken.FindStringSubmatch(module)
	if token == nil {
		s.Fatalf("no token in %s", module)
	}
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	c, answer, err := websocket.Dial(ctx, address+"/?token="+token[1], &websocket.DialOptions{
		HTTPClient: s.visitor, Subprotocols: []string{"vite-hmr"}, HTTPHeader: http.Header{"Origin": {address}},
	})
	if err != nil {
		s.Fatalf("%v %v", err, answer)
	}
	s.Cleanup(func() { _ = c.CloseNow() })
	if c.Subprotocol() != "vite-hmr" {
		s.Errorf("the subprotocol is %q", c.Subprotocol())
	}
	if m := s.readHot(c); m.Type != "connected" {
		s.Fatalf("the first message is %+v", m)
	}
	return c
}

// readHot returns the next message, without the messages that keep the connection alive.
func (s *site) readHot(c *websocket.Conn) hotMessage {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	for {
		_, content, err := c.Read(ctx)
		s.check(err)
		var m hotMessage
		s.check(json.Unmarshal(content, &m))
		if m.Type != "ping" {
			return m
		}
	}
}

// TestVite develops a page: the development server transforms its modules, and reports a change on the drive to the open page.
func TestVite(t *testing.T) {
	s := newShop(t, "")
	address := s.register(client.NewApp{Path: "shop", Command: viteCommand})
	if !strings.HasPrefix(address, "http://shop--acme.localhost:") {
		t.Fatalf("the address is %s", address)
	}
	if answer, _ := s.send(http.MethodGet, address+"/main.ts", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a visit: %s", answer.Status)
	}
	s.launch("shop")
	if _, page := s.get(address + "/"); !strings.Contains(page, `src="/@vite/client"`) || !strings.Contains(page, "<title>Shop") {
		t.Errorf("the page is %s", page)
	}
	answer, module := s.get(address + "/main.ts")
	if kind := answer.Header.Get("Content-Type"); !strings.Contains(kind, "javascript") {
		t.Errorf("the module is %s", kind)
	}
	if strings.Contains(module, "type Greeting") || !strings.Contains(module, `from "/greeting.ts"`) {
		t.Errorf("the module is not transformed: %s", module)
	}
	if _, imported := s.get(address + "/greeting.ts"); !strings.Contains(imported, "Good morning") || strings.Contains(imported, "interface") {
		t.Errorf("the imported module is %s", imported)
	}

	c := s.hot(address)
	s.put("shop/greeting.ts", "export interface Greeting { text: string }\n\nexport const greeting: Greeting = { text: 'Good evening' }\n")
	m := s.readHot(c)
	if m.Type != "update" || len(m.Updates) != 1 || m.Updates[0].Type != "js-update" || m.Updates[0].Path != "/main.ts" || m.Updates[0].AcceptedPath != "/greeting.ts" {
		t.Fatalf("after the change, the message is %+v", m)
	}
	if _, changed := s.get(address + "/greeting.ts?t=" + strconv.FormatInt(m.Updates[0].Timestamp, 10)); !strings.Contains(changed, "Good evening") {
		t.Errorf("the changed module is %s", changed)
	}
}

// TestViteHost serves the app below a domain of the operator: Vite refuses its names until the configuration allows them.
func TestViteHost(t *testing.T) {
	s := newShop(t, "apps.test")
	address := s.register(client.NewApp{Path: "shop", Command: viteCommand})
	s.launch("shop")
	if answer, body := s.send(http.MethodGet, address+"/", nil); answer.StatusCode != http.StatusForbidden || !strings.Contains(body, "allowedHosts") {
		t.Fatalf("a name that is not allowed: %s %s", answer.Status, body)
	}
	s.put("shop/vite.config.js", "export default { server: { allowedHosts: ['.apps.test'] } }\n")
	if _, err := s.api.RestartApp(t.Context(), workspace, "shop"); err != nil {
		t.Fatal(err)
	}
	s.get(address + "/main.ts")
	s.get(address + "/greeting.ts")
	c := s.hot(address)
	s.put("shop/greeting.ts", "export const greeting = { text: 'Good night' }\n")
	if m := s.readHot(c); m.Type != "update" {
		t.Errorf("after the change, the message is %+v", m)
	}
}
