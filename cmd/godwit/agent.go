package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"godwit/agent"
	"godwit/agent/api"
	"godwit/agent/config"
)

// defaultConfig is where a host's configuration is.
const defaultConfig = "/etc/godwit/agent.yaml"

func newAgent() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use: "agent", Short: "run this host's agent", Example: "  godwit agent --config /etc/godwit/agent.yaml",
		Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := loadConfig(config, "write one as docs/agent.md says, or name another by --config FILE"); err != nil {
				return err
			}
			if err := rootFor("agent", "for guests and the kernel's network"); err != nil {
				return err
			}
			return agent.Main(c.Context(), config)
		},
	}
	c.Flags().StringVar(&config, "config", defaultConfig, "configuration file")
	return c
}

// ask is how commands reach this host's agent.
func ask(c *cobra.Command) (*api.Client, error) {
	socket, err := c.Flags().GetString("socket")
	if err == nil && socket != "" {
		return api.NewClient(socket), nil
	}
	path, err := c.Flags().GetString("config")
	if err != nil || path == "" {
		return nil, usageError{errors.New("which agent? give --socket PATH or --config FILE")}
	}
	config, err := loadConfig(path, "name another by --config FILE, or the agent's socket by --socket PATH")
	if err != nil {
		return nil, err
	}
	return api.NewClient(config.Socket()), nil
}

// loadConfig reads a host's configuration; missing says what to do where it is not there. What is
// wrong with the file is an error of the one who named it.
func loadConfig(path, missing string) (*config.Config, error) {
	config, err := config.Load(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, usageError{fmt.Errorf("which agent? there is no %s; %s", path, missing)}
	case errors.Is(err, os.ErrPermission):
		return nil, usageError{fmt.Errorf("which agent? no permission to read %s; run the command as root", path)}
	case err != nil:
		return nil, usageError{err}
	}
	return config, nil
}

// onAgent is the body of a command that asks this host's agent.
func onAgent(body func(c *cobra.Command, client *api.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client, err := ask(c)
		if err != nil {
			return err
		}
		return body(c, client, args)
	}
}

// onHost is that of one that shows what the agent tells of this host.
func onHost(body func(c *cobra.Command, info api.HostInfo, args []string) error) func(*cobra.Command, []string) error {
	return onAgent(func(c *cobra.Command, client *api.Client, args []string) error {
		info, err := client.Host(c.Context())
		if err != nil {
			return err
		}
		return body(c, info, args)
	})
}

// askFlags adds the flags that ask reads.
func askFlags(c *cobra.Command) *cobra.Command {
	c.PersistentFlags().String("socket", "", "unix socket of the agent (default: by --config)")
	c.PersistentFlags().String("config", defaultConfig, "configuration file of this host's agent")
	return c
}
