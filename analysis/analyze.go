package analysis

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gswarm/gswarm/table"
)

// readers are at work at once: one for each core of a small machine. Tables are
// read one by one, each by one reader, the longest first.
const parallelReaders = 2

// tables is what the readers made of the run's tables.
type tables struct {
	gpu      gpuReader
	activity activityReader
	power    powerReader
	counters gpuCounterReader
	holders  holderReader
	ranks    rankReader
	host     *nodeReader
	net      *nodeReader
	fabric   *nodeReader
	mounts   *nodeReader
	events   eventReader
	clocks   clockReader
}

// Analyze reads the run once and says what it finds. What cannot be read is an
// error; what is not there is said in the Result. It keeps blocks of sums of
// each GPU and rank and no rows: memory grows with the number of GPUs and, up to
// a limit, with the run's length.
func Analyze(ctx context.Context, src Source, facts Facts) (*Result, error) {
	t, err := readTables(ctx, src)
	if err != nil {
		return nil, err
	}
	m := assemble(facts, t)
	return m.result(), nil
}

func readTables(ctx context.Context, src Source) (*tables, error) {
	t := &tables{host: newHostReader(), net: newNetReader(), fabric: newFabricReader(), mounts: newMountReader()}
	type job struct {
		of   *table.Table
		read func(context.Context, Source) error
	}
	jobs := []job{
		{table.GPUPower, t.power.read}, {table.GPU, t.gpu.read}, {table.GPUActivity, t.activity.read},
		{table.Rank, t.ranks.read}, {table.GPUCounter, t.counters.read}, {table.GPUProcess, t.holders.read},
		{table.Host, t.host.read}, {table.Net, t.net.read}, {table.Infiniband, t.fabric.read},
		{table.Filesystem, t.mounts.read}, {table.Event, t.events.read}, {table.ClockBracket, t.clocks.read},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan job)
	errs := make(chan error, len(jobs))
	var wg sync.WaitGroup
	for range parallelReaders {
		wg.Go(func() {
			for j := range queue {
				if err := j.read(ctx, src); err != nil {
					errs <- fmt.Errorf("read table %s: %w", j.of.Name, err)
					cancel()
				}
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		// What was cut short by another table's error is no error of its own.
		if all == nil || !errors.Is(err, context.Canceled) {
			all = errors.Join(all, err)
		}
	}
	return t, all
}
