package runner

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestRequestsToToolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		var served, ended atomic.Int64
		tools := limitTools(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served.Add(1)
			<-answers
		}))
		ctx, cancel := context.WithCancel(t.Context())
		const all = 2 * maxToolRequests
		for range all {
			go func() {
				tools.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil))
				ended.Add(1)
			}()
		}
		synctest.Wait()
		answers <- struct{}{}
		synctest.Wait()
		if served.Load() != maxToolRequests+1 || ended.Load() != 1 {
			t.Errorf("%d requests were served, %d have ended", served.Load(), ended.Load())
		}
		cancel()
		synctest.Wait()
		if ended.Load() != all-maxToolRequests {
			t.Errorf("%d requests have ended after their clients have gone", ended.Load())
		}
		close(answers)
	})
}
