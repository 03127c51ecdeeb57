package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"godwit/agent/api"
)

func newMetrics() *cobra.Command {
	return askFlags(&cobra.Command{
		Use: "metrics", Short: "print this host's metrics, in the Prometheus text format",
		Example: "  godwit metrics\n  godwit metrics --config /etc/godwit/agent.yaml | grep in_doubt", Args: argsExactly(0, "no arguments"),
		RunE: onAgent(func(c *cobra.Command, client *api.Client, _ []string) error {
			if !asJSON(c) {
				return client.Metrics(c.Context(), c.OutOrStdout())
			}
			var text bytes.Buffer
			if err := client.Metrics(c.Context(), &text); err != nil {
				return err
			}
			samples, err := samplesOf(text.Bytes())
			if err != nil {
				return err
			}
			return printJSON(c.OutOrStdout(), samples)
		}),
	})
}

// samplesOf are the samples of a text, as Prometheus has them in JSON.
func samplesOf(text []byte) (model.Vector, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var all model.Vector
	for _, name := range slices.Sorted(maps.Keys(families)) {
		some, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(time.Now().UnixNano())}, families[name])
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}
