//go:build unix

package main

import (
	"math"
	"slices"
)

// fitSlope returns the slope of the least-squares line through the points, and twice its standard
// error. The error is infinite if there are fewer than three points or all x are equal.
func fitSlope(x, y []float64) (slope, twiceError float64) {
	n := float64(len(x))
	if n < 3 {
		return 0, math.Inf(1)
	}
	mx, my := mean(x), mean(y)
	sxx, sxy := 0.0, 0.0
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	if sxx == 0 {
		return 0, math.Inf(1)
	}
	slope = sxy / sxx
	rest := 0.0
	for i := range x {
		d := y[i] - my - slope*(x[i]-mx)
		rest += d * d
	}
	return slope, 2 * math.Sqrt(rest/(n-2)/sxx)
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
