package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// A mallory is a person who attacks the node with three keys and an app, and a stranger without a key.
type mallory struct {
	soak *soak
	api  *api.Client
	attackPlan
	counts map[string]map[string]int // the outcomes of the attacks: by the name of the attack and by the status or the error
}

// soakRole is the environment variable with the attackPlan of a process of the tests that is the attackers.
const soakRole = "ATELIER_TEST_SOAK"

// An attackPlan is the plan that the process of the attackers gets.
type attackPlan struct {
	Node    string   `json:"node"`
	Keys    []string `json:"keys"`
	AppHost string   `json:"appHost"`
	Attacks []string `json:"attacks"` // their names
	// Divisor divides the number of acts at the same time.
	Divisor int `json:"divisor"`
}

// attackers are a process that attacks until its standard input ends.
type attackers struct {
	attackPlan
	counts map[string]map[string]int
	mu     sync.Mutex
}

// An attacker attacks in one way, from an address of its own.
type attacker struct {
	*attackers
	address string
	key     string // empty: a stranger
	http    *http.Client
	api     *api.Client
}

const (
	mallorySlug = "mallory"

	// repetition is the pause before an act is repeated.
	repetition = time.Second
)

func (s *soak) newMallory() *mallory {
	s.Helper()
	m := &mallory{soak: s, api: s.person(mallorySlug, "127.0.0.31", api.WithAttempts(1)), attackPlan: attackPlan{Node: s.node.address}}
	s.workspace(m.api, mallorySlug)
	for i := range 3 {
		key, err := m.api.CreateAPIKey(s.Context(), api.NewAPIKey{Name: fmt.Sprint("key ", i)})
		if err != nil {
			s.Fatal(err)
		}
		m.Keys = append(m.Keys, key.Key)
	}
	if err := m.api.MakeFolder(s.Context(), mallorySlug, "site"); err != nil {
		s.Fatal(err)
	}
	if _, err := m.api.RegisterApp(s.Context(), mallorySlug, api.NewApp{
		Path: "site", Slug: "site", Command: "exec /.atelier/atelier site", APIScopes: []string{},
	}); err != nil {
		s.Fatal(err)
	}
	app, err := m.api.SetAppVisibility(s.Context(), mallorySlug, "site", api.AppVisibility{Visibility: "public"})
	if err != nil {
		s.Fatal(err)
	}
	m.AppHost = app.Slug + "--" + mallorySlug + ".localhost"
	return m
}

// A soakAttack repeats an act until its context ends, with a number of acts at the same time.
type soakAttack struct {
	name     string
	together int
	stranger bool
	act      func(*attacker, context.Context, int) (outcome string, err error)
	// isLong leaves the attack out of the sample. Beside other tests, the commands of the tenants now and then take longer than their
	// connections last, or cannot be started.
	isLong bool
}

// allSoakAttacks has the attacks of one person, one app and one stranger on a node.
var allSoakAttacks = []soakAttack{
	{"idle connections", 800, true, func(a *attacker, ctx context.Context, _ int) (string, error) {
		return a.hold(ctx, "")
	}, false},
	{"slow forms", 100, true, func(a *attacker, ctx context.Context, _ int) (string, error) {
		return a.hold(ctx, "POST /oauth/token HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\na")
	}, false},
	{"connections to an app", 300, true, func(a *attacker, ctx context.Context, _ int) (string, error) {
		return a.hold(ctx, "GET / HTTP/1.1\r\nHost: "+a.AppHost+"\r\n\r\n")
	}, false},
	{"metrics", 4, true, func(a *attacker, ctx context.Context, _ int) (string, error) {
		return a.send(ctx, "GET", "/metrics", nil)
	}, false},
	{"slow uploads", 200, false, func(a *attacker, ctx context.Context, i int) (string, error) {
		return a.hold(ctx, fmt.Sprintf("PUT /v1/ws/%s/drive/slow-%d HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\nx", mallorySlug, i, a.key))
	}, false},
	{"streams", 100, false, func(a *attacker, ctx context.Context, i int) (string, error) {
		return a.hold(ctx, fmt.Sprintf("GET /v1/ws/%s/file-activity/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", mallorySlug, a.key))
	}, false},
	{"empty files", 4, false, func(a *attacker, ctx context.Context, i int) (string, error) {
		return a.send(ctx, "PUT", fmt.Sprintf("/v1/ws/%s/drive/empty-%s", mallorySlug, api.NewRequestID()), nil)
	}, false},
	{"images", 2, false, func(a *attacker, ctx context.Context, _ int) (string, error) {
		image := api.SessionImage{MediaType: "image/png", Data: append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 4<<20)...)}
		_, err := a.api.StartSession(ctx, mallorySlug, api.NewSession{Prompt: "say ok", Images: []api.SessionImage{image, image}})
		return "", err
	}, false},
	{"notes", 2, false, (*attacker).note, false},
	{"large bodies", 20, false, func(a *attacker, ctx context.Context, _ int) (string, error) {
		body, _ := json.Marshal(map[string]string{"prompt": strings.Repeat("x", 14<<20)})
		return a.send(ctx, "POST", "/v1/ws/"+mallorySlug+"/agent/sessions", body)
	}, false},
	{"locks", 2, false, (*attacker).lock, false},
	{"finished turns", 2, false, func(a *attacker, ctx context.Context, _ int) (string, error) {
		_, err := a.api.StartSessionAndWait(ctx, mallorySlug, api.NewSession{Prompt: "say ok"})
		return "", err
	}, false},
	{"turns that sleep", 8, false, func(a *attacker, ctx context.Context, _ int) (string, error) {
		_, err := a.api.StartSession(ctx, mallorySlug, api.NewSession{Prompt: "$ sleep 1000"})
		return "", err
	}, true},
	{"sleeps", 8, false, command("sleep 1000"), true},
	{"files of processes", 1, false, command("mkdir -p flood; i=0; while :; do : >flood/$i; i=$((i+1)); done"), true},
	{"unlinked files", 1, false, command("exec 3>big; rm big; cat /dev/zero >&3"), true},
	{"memory", 1, false, command("tail /dev/zero"), true},
	{"forks", 1, false, command("f() { f | f & }; f; sleep 60"), true},
}

// command is an attack by a command in the computer of the workspace.
func command(script string) func(*attacker, context.Context, int) (string, error) {
	return func(a *attacker, ctx context.Context, _ int) (string, error) {
		status, err := a.api.Exec(ctx, mallorySlug, api.ExecRequest{Argv: []string{"sh", "-c", script}}, io.Discard, io.Discard)
		return fmt.Sprint("exit ", status), err
	}
}

// soakAttacksOf returns the names of the attacks that match a regular expression. A sample has only attacks that are not long.
func soakAttacksOf(pattern string, isSample bool) (names []string) {
	matching := regexp.MustCompile(pattern)
	for _, a := range allSoakAttacks {
		if matching.MatchString(a.name) && !(isSample && a.isLong) {
			names = append(names, a.name)
		}
	}
	return names
}

// attack starts a process with the attackers and returns a function that ends the attacks. The process yields the processors to the node
// and to the tenants, as attackers on other machines would.
func (m *mallory) attack(attacks []string, divisor int) (end func()) {
	m.soak.Helper()
	m.Attacks, m.Divisor = attacks, divisor
	plan, err := json.Marshal(m.attackPlan)
	if err != nil {
		m.soak.Fatal(err)
	}
	command := exec.Command("nice", "-n", "19", os.Args[0])
	command.Env = append(os.Environ(), soakRole+"="+string(plan))
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	in, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		m.soak.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		in.Close()
		err := command.Wait()
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &m.counts)
		}
		if err != nil {
			m.soak.Errorf("the attackers: %v\n%s", err, &errs)
		}
	})
	m.soak.Cleanup(end)
	return end
}

// runAttackers attacks by a plan until the standard input ends, and prints the outcomes.
func runAttackers(plan string) error {
	all := &attackers{counts: map[string]map[string]int{}}
	if err := json.Unmarshal([]byte(plan), &all.attackPlan); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var acting sync.WaitGroup
	for number, a := range allSoakAttacks {
		if !slices.Contains(all.Attacks, a.name) {
			continue
		}
		by, err := all.attacker(number, a.stranger)
		if err != nil {
			return err
		}
		for i := range max(a.together/all.Divisor, 1) {
			acting.Go(func() { by.repeat(ctx, a, i) })
		}
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	acting.Wait()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(all.counts))
}

// attacker returns the attacker with a number.
func (all *attackers) attacker(number int, stranger bool) (*attacker, error) {
	a := &attacker{attackers: all, address: fmt.Sprint("127.0.1.", 1+number)}
	if !stranger {
		a.key = all.Keys[number%len(all.Keys)]
	}
	a.http = clientFrom(a.address)
	var err error
	a.api, err = api.New(all.Node, a.key, api.WithHTTPClient(a.http), api.WithAttempts(1))
	return a, err
}

// repeat repeats an attack until the context ends.
func (a *attacker) repeat(ctx context.Context, attack soakAttack, i int) {
	for ctx.Err() == nil {
		outcome, err := attack.act(a, ctx, i)
		if ctx.Err() != nil {
			return
		}
		a.count(attack.name, outcome, err)
		select {
		case <-ctx.Done():
		case <-time.After(repetition):
		}
	}
}

func (all *attackers) count(name, outcome string, err error) {
	if refused, is := errors.AsType[*api.Error](err); is {
		outcome = fmt.Sprint(refused.Status, " ", refused.Code)
	} else if err != nil {
		outcome = "connection"
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.counts[name] == nil {
		all.counts[name] = map[string]int{}
	}
	all.counts[name][outcome]++
}

// report logs the outcomes of the attacks.
func (m *mallory) report() {
	for _, name := range slices.Sorted(maps.Keys(m.counts)) {
		m.soak.Logf("attack by %s: %v", name, m.counts[name])
	}
}

// hold sends the beginning of a request over a connection of its own, and keeps the connection until the node closes it.
func (a *attacker) hold(ctx context.Context, beginning string) (string, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.address)}}).DialContext(ctx, "tcp", strings.TrimPrefix(a.Node, "http://"))
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, beginning); err != nil {
		return "", err
	}
	answer := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return "closed", nil
	}
	_, _ = io.Copy(io.Discard, conn)
	return string(answer[len("HTTP/1.1 "):]), nil
}

// send sends a request and returns the status of the response.
func (a *attacker) send(ctx context.Context, method, path string, body []byte, headers ...string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.Node+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	if a.key != "" {
		request.Header.Set("Authorization", "Bearer "+a.key)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := a.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return fmt.Sprint(response.StatusCode), err
}

// note starts a session and sends long notes to it.
func (a *attacker) note(ctx context.Context, _ int) (string, error) {
	started, err := a.api.StartSession(ctx, mallorySlug, api.NewSession{Prompt: "say ok"})
	for err == nil {
		_, err = a.api.NoteSession(ctx, mallorySlug, started.SessionID, api.SessionNote{Text: strings.Repeat("note ", 12_000)})
		a.count("notes", "", err)
	}
	return "", err
}

// lock locks many names, refreshes the locks, and lists the folder.
func (a *attacker) lock(ctx context.Context, i int) (string, error) {
	const info = `<?xml version="1.0"?><lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype><owner>%s</owner></lockinfo>`
	folder := fmt.Sprintf("/v1/ws/%s/drive/", mallorySlug)
	for n := range 256 {
		outcome, err := a.send(ctx, "LOCK", fmt.Sprintf("%slocked-%d-%d", folder, i, n), fmt.Appendf(nil, info, strings.Repeat("o", 1000)), "Content-Type", "application/xml")
		if a.count("locks", outcome, err); err != nil {
			return outcome, err
		}
	}
	for ctx.Err() == nil {
		outcome, err := a.send(ctx, "PROPFIND", folder, nil, "Depth", "1")
		if a.count("locks", "PROPFIND "+outcome, err); err != nil {
			return outcome, err
		}
	}
	return "", nil
}

// leave deletes everything that the attacks made, as an operator does after a discovery.
func (m *mallory) leave() {
	m.soak.Helper()
	for _, command := range [][]string{{"user", "disable", "--email=" + mallorySlug + "@example.org"}, {"workspace", "suspend", "--slug=" + mallorySlug}} {
		if _, errs, code := atelier(append([]string{"admin", command[0], command[1], "--data=" + m.soak.node.dir}, command[2:]...)...); code != 0 {
			m.soak.Errorf("admin %s: exit %d, %s", command, code, errs)
		}
	}
}
