package runner

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// metrics are the metrics of a Runner.
type metrics struct {
	turns         *prometheus.CounterVec
	running       prometheus.Gauge
	waits         prometheus.Histogram
	agents        prometheus.Gauge
	agentStarts   *prometheus.CounterVec
	agentFailures *prometheus.CounterVec
	permissions   *prometheus.CounterVec
	deltas        prometheus.Counter
	gateway       *prometheus.CounterVec
	tokens        *prometheus.CounterVec
}

// outcomeLost is the outcome of a turn if its run has ended with its process.
const outcomeLost = codeRunnerLost

func newMetrics() *metrics {
	m := &metrics{
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_session_turns_total",
			Help: "Turns that have ended on this node, by outcome: complete, ask, sleep, interrupted (by a person or a budget), failed, runner_lost.",
		}, []string{"outcome"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "atelier_session_turns_running", Help: "Turns that run on this node."}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atelier_session_turn_wait_seconds", Help: "Time from the start of a turn in the session until a run takes it.",
			Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000},
		}),
		agents: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_session_agents", Help: "Processes of agents that this node has started and that have not ended, with and without a running turn.",
		}),
		agentStarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_session_agent_starts_total", Help: "Turns that have got an agent, by kind: new (a started process), reused (the process of an earlier turn).",
		}, []string{"kind"}),
		agentFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_session_agent_failures_total", Help: "Failures of agents by kind: start, exit (in a turn), silence, cancel (not in time).",
		}, []string{"kind"}),
		permissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_session_permissions_total", Help: "Requests of agents for permission by outcome: granted, asked.",
		}, []string{"outcome"}),
		deltas: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_session_deltas_total", Help: "Published pieces of text that was still being written.",
		}),
		gateway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_model_requests_total", Help: "Requests of agents to models, by model and status of HTTP.",
		}, []string{"model", "code"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_model_tokens_total", Help: "Tokens that models have reported, by model and direction: input, output.",
		}, []string{"model", "direction"}),
	}
	// A series that begins at 0 shows its first increase.
	for vec, values := range map[*prometheus.CounterVec][]string{
		m.turns:         {"complete", "ask", "sleep", "interrupted", "failed", outcomeLost},
		m.agentStarts:   {"new", "reused"},
		m.agentFailures: {"start", "exit", "silence", "cancel"},
		m.permissions:   {"granted", "asked"},
	} {
		for _, v := range values {
			vec.WithLabelValues(v)
		}
	}
	return m
}

// countTurn counts the end of a turn.
func (m *metrics) countTurn(end *sessionv1.EndTurn) {
	outcome := "interrupted"
	switch code := end.GetError().GetCode(); end.GetStatus() {
	case sessionv1.TurnStatus_TURN_STATUS_COMPLETE:
		outcome = "complete"
	case sessionv1.TurnStatus_TURN_STATUS_ASK:
		outcome = "ask"
	case sessionv1.TurnStatus_TURN_STATUS_SLEEP:
		outcome = "sleep"
	default:
		switch {
		case code == codeRunnerLost:
			outcome = outcomeLost
		case code != "" && code != codeBudget && code != session.FailureAccessLost && !isRequestedCode(code):
			outcome = "failed"
		}
	}
	m.turns.WithLabelValues(outcome).Inc()
}

// countGateway counts a request to a model.
func (m *metrics) countGateway(model string, status int) {
	m.gateway.WithLabelValues(model, strconv.Itoa(status)).Inc()
}

func (m *metrics) countTokens(model string, input, output int64) {
	m.tokens.WithLabelValues(model, "input").Add(float64(max(input, 0)))
	m.tokens.WithLabelValues(model, "output").Add(float64(max(output, 0)))
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.turns, m.running, m.waits, m.agents, m.agentStarts, m.agentFailures, m.permissions, m.deltas, m.gateway, m.tokens,
	}
}

// Describe implements prometheus.Collector.
func (r *Runner) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range r.metrics.collectors() {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (r *Runner) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range r.metrics.collectors() {
		c.Collect(metrics)
	}
}
