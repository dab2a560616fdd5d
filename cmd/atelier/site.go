package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

// siteCommand serves a folder, so that a folder of static files is an app without any other program.
type siteCommand struct {
	Folder string `arg:"" optional:"" default:"." help:"Folder with the files. Default: the current directory."`
	Port   string `env:"PORT" placeholder:"PORT" help:"Port to listen on. Default: the variable PORT, which an app has."`
}

// siteGrace is the time in which requests can end after SIGTERM.
const siteGrace = 5 * time.Second

// Run serves until ctx is canceled by a signal.
func (c *siteCommand) Run(ctx context.Context, out console) error {
	if c.Port == "" {
		return coded{errors.New("port: set it, or the variable PORT"), exitConfig}
	}
	root, err := os.OpenRoot(c.Folder)
	if err != nil {
		return err
	}
	defer root.Close()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", c.Port))
	if err != nil {
		return err
	}
	fmt.Fprintf(out.errors, "serving %s at %s\n", c.Folder, l.Addr())
	server := &http.Server{
		Handler: siteHandler(root.FS()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(out.errors, nil), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), siteGrace)
	defer cancel()
	return cmp.Or(server.Shutdown(ending), server.Close())
}

// siteHandler serves the files of a folder: index.html for a folder, and 404.html, if there is one, for a missing file. Files and
// folders with names that begin with a dot, and folders without an index.html, are missing too.
func siteHandler(files fs.FS) http.Handler {
	served := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // an edited file is seen at the next request
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !isServed(files, r.URL.Path) {
			missing(w, files)
			return
		}
		served.ServeHTTP(w, r)
	})
}

func isServed(files fs.FS, requested string) bool {
	name := strings.TrimPrefix(path.Clean("/"+requested), "/")
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return false
		}
	}
	found, err := fs.Stat(files, cmp.Or(name, "."))
	if err != nil {
		return false
	}
	if found.IsDir() {
		found, err = fs.Stat(files, path.Join(name, "index.html"))
	}
	return err == nil && found.Mode().IsRegular()
}

func missing(w http.ResponseWriter, files fs.FS) {
	page, err := fs.ReadFile(files, "404.html")
	if err != nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(page)
}
