package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/egress"
)

// computerSettings are the settings of the computers that run code for workspaces.
type computerSettings struct {
	ComputerDriver        string        `group:"Computers" default:"local" enum:"local,docker,none" help:"Driver of computers: ${enum}. local isolates processes with the kernel's namespaces, docker runs them in containers of a Docker or Podman engine, none runs no processes."`
	ComputerIsolation     string        `group:"Computers" default:"required" enum:"required,none" help:"required: run processes only if this machine can isolate them. none: otherwise run them as the user of the node, with all rights of that user; only for trusted members."`
	ComputerImage         string        `group:"Computers" placeholder:"IMAGE" help:"Image of the containers; required with the docker driver."`
	ComputerEngine        string        `group:"Computers" placeholder:"URL" help:"Address of the engine of containers, such as unix:///run/podman/podman.sock. None: DOCKER_HOST, or Docker's default socket."`
	ComputerCgroupParent  string        `group:"Computers" placeholder:"SLICE" help:"Control group in which the engine makes those of the containers, whose limit on memory is in force for all of them together: a slice such as atelier.slice if the engine uses systemd, or else a path such as /atelier. None: the engine's own."`
	ComputerMemory        size          `group:"Computers" default:"2GiB" help:"Memory that a computer may use."`
	ComputerProcessors    float64       `group:"Computers" default:"2" help:"Processors that a computer may use."`
	ComputerProcesses     int           `group:"Computers" default:"1024" help:"Processes and threads that may run in a computer."`
	MaxProcesses          int           `group:"Computers" default:"0" help:"Commands, terminals, agents and processes of apps that run in all computers together, beyond which more are answered 503. 0: one for each 32 MiB of memory, and at most 128 for each processor. Fewer where the limit of open files leaves no room for so many."`
	MaxMemory             size          `group:"Computers" default:"0" help:"Memory that all computers together may use, as 24GiB. 0: the memory of the machine or of the control group, less GOMEMLIMIT and 64 MiB, or without GOMEMLIMIT less an eighth and at least 512 MiB; at least a quarter."`
	ComputerIdle          time.Duration `group:"Computers" default:"5m" help:"Time after which a computer without processes stops."`
	ComputerNetwork       string        `group:"Computers" default:"off" placeholder:"off|on|URL" help:"Outgoing network of computers. on: public addresses only. A URL, http://HOST:PORT or socks5://HOST:PORT: only through that proxy. The docker driver requires off."`
	ComputerNetworkAllow  []string      `group:"Computers" placeholder:"NETWORK" help:"Networks that computers may reach besides public addresses, as 10.1.0.0/16."`
	ComputerPorts         []string      `group:"Computers" placeholder:"PORT" help:"Ports that computers may reach with computer-network on, as 443 or 8000-8999. None: all."`
	TerminalDetachedLimit time.Duration `group:"Computers" default:"10m" help:"Time after which a terminal without a connected client ends."`
}

func (s *computerSettings) check() error {
	return errors.Join(
		between("computer-memory", s.ComputerMemory, 16<<20, 1<<50),
		s.checkProcessors(),
		between("computer-processes", s.ComputerProcesses, 8, 1_000_000),
		between("max-processes", s.MaxProcesses, 0, 100_000),
		between("max-memory", s.MaxMemory, 0, 1<<50),
		between("computer-idle", s.ComputerIdle, time.Second, 24*time.Hour),
		between("terminal-detached-limit", s.TerminalDetachedLimit, time.Second, 24*time.Hour),
		s.checkNetwork(),
		s.checkDriver(),
	)
}

func (s *computerSettings) checkProcessors() error {
	if s.ComputerProcessors < 0.05 || s.ComputerProcessors > 1024 {
		return fmt.Errorf("computer-processors: %v is not between 0.05 and 1024", s.ComputerProcessors)
	}
	return nil
}

func (s *computerSettings) checkDriver() error {
	if s.ComputerDriver == "docker" && s.ComputerImage == "" {
		return errors.New("computer-image: it is required with the docker driver")
	}
	if s.ComputerDriver == "docker" && s.ComputerNetwork != "off" {
		return errors.New("computer-network: the docker driver gives containers no network; set it to off")
	}
	if s.ComputerDriver != "docker" && (s.ComputerImage != "" || s.ComputerEngine != "" || s.ComputerCgroupParent != "") {
		return errors.New("computer-image, computer-engine, computer-cgroup-parent: they are settings of the docker driver; set computer-driver to docker")
	}
	if s.ComputerCgroupParent != "" && !docker.ValidCgroupParent(s.ComputerCgroupParent) {
		return fmt.Errorf("computer-cgroup-parent: %q is neither a slice, such as atelier.slice, nor a path, such as /atelier", s.ComputerCgroupParent)
	}
	return nil
}

func (s *computerSettings) checkNetwork() error {
	_, err := egress.Parse(s.ComputerNetwork)
	if err != nil {
		err = fmt.Errorf("computer-network: %w", err)
	}
	_, policyErr := egress.ParsePolicy(s.ComputerNetworkAllow, s.ComputerPorts)
	if policyErr != nil {
		policyErr = fmt.Errorf("computer-network-allow, computer-ports: %w", policyErr)
	}
	return errors.Join(err, policyErr)
}

// options returns the settings for the node.
func (s *computerSettings) options() (node.ComputerOptions, error) {
	network, err := egress.Parse(s.ComputerNetwork)
	policy, policyErr := egress.ParsePolicy(s.ComputerNetworkAllow, s.ComputerPorts)
	return node.ComputerOptions{
		Driver: s.ComputerDriver, AllowUnisolated: s.ComputerIsolation == "none", Image: s.ComputerImage, Engine: s.engine(), CgroupParent: s.ComputerCgroupParent,
		Limits: computer.Limits{
			MemoryBytes: int64(s.ComputerMemory), Processors: s.ComputerProcessors, Processes: s.ComputerProcesses,
		},
		MaxProcesses: s.MaxProcesses, MaxMemory: int64(s.MaxMemory), IdleAfter: s.ComputerIdle, Network: network, Policy: policy, DetachedLimit: s.TerminalDetachedLimit,
	}, errors.Join(err, policyErr)
}

// engine returns the address of the engine of the docker driver.
func (s *computerSettings) engine() string {
	return cmp.Or(s.ComputerEngine, os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock")
}
