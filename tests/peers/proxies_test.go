package peers

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/bench"
)

// nginxConfig has a proxy for every host, with the same number of idle connections as the edge, two workers and no access log. The
// arguments are the folder of the server, its port and the address of the app.
const nginxConfig = `
daemon off;
worker_processes 2;
pid %[1]s/pid;
error_log stderr error;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	keepalive_requests 1000000000;
	upstream app { server %[3]s; keepalive 64; keepalive_requests 1000000000; }
	server {
		listen 127.0.0.1:%[2]d;
		location / {
			proxy_pass http://app;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $http_host;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Host $http_host;
			proxy_set_header X-Forwarded-Proto http;
			proxy_buffering off;
		}
	}
}
`

// caddyConfig has a proxy for every host, without an access log. The arguments are the port and the address of the app.
const caddyConfig = `
{
	admin off
	auto_https off
	log {
		level ERROR
	}
}
http://:%[1]d {
	bind 127.0.0.1
	reverse_proxy %[2]s {
		flush_interval -1
		transport http {
			keepalive_idle_conns_per_host 64
			compression off
		}
	}
}
`

// BenchmarkProxies sends requests for an app of 1 KiB through the edge, nginx, Caddy and a bare httputil.ReverseProxy, over sixteen
// connections. The app, each proxy and the clients have processes of their own.
func BenchmarkProxies(b *testing.B) {
	process, readers := bench.App(b), bench.NewReaders(b)
	request := [][]byte{bench.AppRequest("app0--acme.apps.test", "/")}
	var variants []bench.Variant
	opened := map[string]*bench.Connections{}
	used := bench.Processors{}
	for _, of := range []struct {
		name  string
		start func(*testing.B, bench.Server) *proxy
	}{{"edge", startEdge}, {"nginx", startNginx}, {"caddy", startCaddy}, {"bare", startBare}} {
		p := of.start(b, process)
		if p == nil {
			continue
		}
		v, c := readers.Requesting(of.name, p.address, 16, request)
		variants = append(variants, v)
		opened[of.name], used[of.name] = c, p.processor
	}
	used.Rounds(b, time.Second, variants...).Report(b, "request", variants...)
	for name, c := range opened {
		_, most := c.Latencies()
		b.ReportMetric(float64(most.Microseconds()), name+"-p99-µs")
	}
}

// A proxy is a process in front of an app.
type proxy struct {
	address string
	// processor returns the processor time that the process and its children have used so far.
	processor func() time.Duration
}

func startEdge(b *testing.B, process bench.Server) *proxy {
	s := bench.Edge(b, process, 1)
	return &proxy{s.Address, s.Processor}
}

func startBare(b *testing.B, process bench.Server) *proxy {
	s := bench.Bare(b, process)
	return &proxy{s.Address, s.Processor}
}

// startNginx starts nginx in front of a process, and returns it. It returns nil and logs why if nginx is not installed.
func startNginx(b *testing.B, process bench.Server) *proxy {
	binary, err := exec.LookPath("nginx")
	if err != nil {
		binary = "/usr/sbin/nginx"
	}
	dir, port := bench.Disk(b), freePort(b)
	return startProxy(b, binary, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxConfig, dir, port, process.Address), port,
		"-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
}

// startCaddy starts Caddy in front of a process, and returns it. It returns nil and logs why if Caddy is not installed.
func startCaddy(b *testing.B, process bench.Server) *proxy {
	binary, err := exec.LookPath("caddy")
	if err != nil {
		binary = "/usr/bin/caddy"
	}
	dir, port := bench.Disk(b), freePort(b)
	file := filepath.Join(dir, "Caddyfile")
	return startProxy(b, binary, file, fmt.Sprintf(caddyConfig, port, process.Address), port, "run", "--config", file, "--adapter", "caddyfile")
}

// startProxy starts a proxy with a configuration, and waits until it serves. It runs until the end of the benchmark.
func startProxy(b *testing.B, binary, file, config string, port int, arguments ...string) *proxy {
	if _, err := os.Stat(binary); err != nil {
		b.Logf("skipped: the comparison with %s, which is not installed", filepath.Base(binary))
		return nil
	}
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		b.Fatal(err)
	}
	command := exec.Command(binary, arguments...)
	home := filepath.Dir(file) // Caddy writes its configuration and state
	command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	command.Stderr = os.Stderr
	run(b, command)
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-ticker.C {
		response, err := http.Get("http://" + address)
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			b.Fatalf("%s answers %s", filepath.Base(binary), response.Status)
		}
		used := processorTimeOf(command.Process.Pid)
		return &proxy{address, func() time.Duration { return used(b) }}
	}
	b.Fatalf("%s did not start", filepath.Base(binary))
	return nil
}
