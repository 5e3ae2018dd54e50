package analysis

// Version is that of Result as JSON. It grows when a field changes its meaning
// or goes; new fields do not change it.
const Version = 1

// Result is all that the analysis says of a run. Times are nanoseconds since
// the Unix epoch on the timeline, shares are between 0 and 1, and what is not
// known is null.
type Result struct {
	Version int `json:"version"`
	Job     Job `json:"job"`
	// GPUs are in the order of node and ordinal.
	GPUs  []GPU  `json:"gpus"`
	Hosts []Host `json:"hosts"`
	Ranks []Rank `json:"ranks"`
	// Totals are over all GPUs.
	Totals Totals `json:"totals"`
	// Balance holds one entry for each metric that was measured.
	Balance []Balance `json:"balance"`
	// Phases cover the run from the first reading to the last without gaps.
	Phases []Phase `json:"phases"`
	// Overall is the bottleneck of the whole run.
	Overall Bottleneck `json:"overall"`
	Steps   Steps      `json:"steps"`
	// Stragglers are in order of what they cost, the dearest first.
	Stragglers []Straggler `json:"stragglers"`
	// Findings are in order of their severity, and of their effect, the largest
	// first.
	Findings  []Finding  `json:"findings"`
	Remaining *Remaining `json:"remaining"`
	Data      Data       `json:"data"`
}

// Place says who and where. Fields that do not apply are null or empty.
type Place struct {
	Node string `json:"node,omitempty"`
	GPU  *int   `json:"gpu,omitempty"`
	UUID string `json:"gpu_uuid,omitempty"`
	Rank *int   `json:"rank,omitempty"`
}

// Span is a stretch of the timeline.
type Span struct {
	BeginNS int64 `json:"begin_ns"`
	EndNS   int64 `json:"end_ns"`
}

// Seconds is the length of the span.
func (s Span) Seconds() float64 { return float64(s.EndNS-s.BeginNS) / 1e9 }

// Job is the run as a whole.
type Job struct {
	Run     string   `json:"run"`
	ID      string   `json:"job_id,omitempty"`
	Command []string `json:"command"`
	Span
	Running bool   `json:"running"`
	Exit    string `json:"exit,omitempty"`
	Nodes   int    `json:"nodes"`
	GPUs    int    `json:"gpus"`
	Ranks   int    `json:"ranks"`
	// GPUNames counts the models.
	GPUNames map[string]int `json:"gpu_names"`
}

// Stat sums up the values of one metric over time.
type Stat struct {
	Mean float64 `json:"mean"`
	// SD is the standard deviation over time (population).
	SD  float64 `json:"sd"`
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	N   int64   `json:"n"`
}

// GPU is what one GPU did in the whole run. A metric that was never read is
// absent from Metrics.
type GPU struct {
	Place
	Name string `json:"name,omitempty"`
	// Ranks are the ranks whose processes held the GPU.
	Ranks []int `json:"ranks,omitempty"`
	// Metrics are by column name of the tables gpu and gpu_activity.
	Metrics map[string]Stat `json:"metrics"`
	// EnergyJ is by the driver's counter where it was read, else from power
	// over time; EnergyFrom says which: "counter" or "power".
	EnergyJ    *float64 `json:"energy_j"`
	EnergyFrom string   `json:"energy_from,omitempty"`
	// IdleShare is the share of time without any work on the GPU.
	IdleShare *float64 `json:"idle_share"`
	// MemoryBytes is what the GPU has.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// Spare says that the GPU did nothing in the whole run while others
	// worked: part of the allocation, not of the work.
	Spare bool `json:"spare,omitempty"`
}

// Host is what one node did in the whole run.
type Host struct {
	Node string `json:"node"`
	// CPUShare is the share of the node's CPU time that was not idle.
	CPUShare *float64 `json:"cpu_share"`
	// MemoryUsedBytes is the most that was in use.
	MemoryUsedBytes *int64 `json:"memory_used_bytes"`
	CPUs            int    `json:"cpus,omitempty"`
	MemoryBytes     int64  `json:"memory_bytes,omitempty"`
	Aligned         bool   `json:"aligned"`
	BoundNS         int64  `json:"bound_ns"`
	Missing         bool   `json:"missing,omitempty"`
}

// Rank is what the processes of one rank did on the host.
type Rank struct {
	Place
	LocalRank *int `json:"local_rank,omitempty"`
	// CPUShare is CPU time over wall time of the rank and its helpers, 1 for
	// one core; RunDelayShare the share of time it waited for a core.
	CPUShare      *float64 `json:"cpu_share"`
	RunDelayShare *float64 `json:"run_delay_share"`
	RSSBytes      *int64   `json:"rss_bytes"`
}

// Totals are over all GPUs and the whole run.
type Totals struct {
	GPUHours float64  `json:"gpu_hours"`
	EnergyJ  *float64 `json:"energy_j"`
	// Metrics holds, by column name, the mean over GPUs of their means, and the
	// largest and smallest value of any.
	Metrics   map[string]Stat `json:"metrics"`
	IdleShare *float64        `json:"idle_share"`
}

// Class is a coefficient of variation in words.
type Class string

// The classes: below 5 %, 10 %, 20 %, and from there.
const (
	Excellent Class = "excellent"
	Good      Class = "good"
	Fair      Class = "fair"
	Poor      Class = "poor"
)

// Balance says how evenly a metric lay over GPUs and over time.
type Balance struct {
	// Metric is a column's name, or "energy_j"; Unit its unit.
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	// Spatial is the coefficient of variation of the GPUs' means, as a share;
	// null with fewer than two GPUs or a mean of zero.
	Spatial *float64 `json:"spatial_cv"`
	Class   Class    `json:"class,omitempty"`
	// Temporal is the mean over GPUs of each one's coefficient of variation
	// over time.
	Temporal *float64 `json:"temporal_cv"`
	// GPUs is how many were compared: spare ones are not.
	GPUs int `json:"gpus"`
	// Lowest and Highest are the GPUs with the smallest and largest mean.
	Lowest  Place `json:"lowest"`
	Highest Place `json:"highest"`
	// Note says why there is no class, or what was left out.
	Note string `json:"note,omitempty"`
}

// Activity is what a GPU spends its time on.
type Activity string

// The activities, by what the GPU's units show.
const (
	Compute       Activity = "compute"       // SMs busy with arithmetic
	Memory        Activity = "memory"        // device memory near its peak
	Communication Activity = "communication" // NVLink or network traffic, SMs hold communication kernels
	Transfer      Activity = "transfer"      // PCIe copies to and from the host
	Launch        Activity = "launch"        // kernels too short to fill the GPU: it waits for launches
	Input         Activity = "input"         // waits for the host between steps: input, preprocessing
	Serial        Activity = "serial"        // waits for another rank that alone works
	Idle          Activity = "idle"          // nothing to do
	Unknown       Activity = "unknown"       // not measured
)

// Bottleneck says how GPU time was spent. Shares add up to 1.
type Bottleneck struct {
	// Name is what bounds the work: an Activity, or "power", "imbalance".
	Name string `json:"name"`
	// Shares are of GPU time, by activity.
	Shares map[Activity]float64 `json:"shares"`
	// Basis says what that rests on, in a sentence.
	Basis string `json:"basis"`
}

// Phase is a stretch of the run in which the job did one kind of thing.
type Phase struct {
	Index int `json:"index"`
	Span
	Bottleneck Bottleneck `json:"bottleneck"`
	// GPUs is how many took part.
	GPUs int `json:"gpus"`
	// StepNS is the period of the steps, null where none was found; StepNote
	// says why not.
	StepNS   *int64 `json:"step_ns"`
	StepNote string `json:"step_note,omitempty"`
	Steps    int    `json:"steps,omitempty"`
	// Metrics are means over GPUs and time, by column name.
	Metrics map[string]float64 `json:"metrics"`
}

// Steps is what is known of the job's iterations over the whole run. Each phase
// has its own period.
type Steps struct {
	// Method is "activity", "marks" or empty where none were found; Note says
	// why there are none.
	Method string `json:"method,omitempty"`
	Note   string `json:"note,omitempty"`
	Count  int    `json:"count"`
	// MedianNS and P95NS are over all steps of all phases.
	MedianNS *int64 `json:"median_ns"`
	P95NS    *int64 `json:"p95_ns"`
	// Ranks hold what each rank did in its steps, by place.
	Ranks []RankSteps `json:"ranks"`
	// List are the steps in order, thinned where they are very many: every
	// ListEvery-th is kept.
	List      []Step `json:"list"`
	ListEvery int    `json:"list_every"`
}

// Step is one iteration of the job.
type Step struct {
	Span
	Phase int `json:"phase"`
}

// RankSteps is how one rank, or one GPU where no rank is known, fared in the
// steps.
type RankSteps struct {
	Place
	// BusyNS is the median time of a step in which the rank's GPU did its own
	// work, that is did not wait for others.
	BusyNS *int64 `json:"busy_ns"`
	// LagNS is the median time by which it came later than the median rank
	// with its part of the step; BoundNS what that is good to.
	LagNS   *int64 `json:"lag_ns"`
	BoundNS int64  `json:"bound_ns"`
	// SlowShare is the share of steps in which it was the last by more than
	// the bound.
	SlowShare *float64 `json:"slow_share"`
}

// Straggler is a rank that others waited for.
type Straggler struct {
	Place
	Span
	Phase int `json:"phase"`
	// Chronic says that it was slow throughout the span; else it was slow in
	// Steps steps only.
	Chronic bool `json:"chronic"`
	Steps   int  `json:"steps"`
	// ExcessNS is the median time of a step that the others waited for it;
	// Excess the share of the step that is.
	ExcessNS int64   `json:"excess_ns"`
	Excess   float64 `json:"excess"`
	BoundNS  int64   `json:"bound_ns"`
	// Cause is the code of the finding that explains it, empty where none
	// was found.
	Cause Cause `json:"cause,omitempty"`
}

// Cause is a stable code of what can be wrong.
type Cause string

// Finding is something that cost time, or data, with what shows it.
type Finding struct {
	Cause Cause `json:"cause"`
	// Title is a line, Detail the rest, both in words for a person.
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	// Places are who it concerns; empty for the whole job.
	Places []Place `json:"places"`
	Span
	// Effect is the share of the job's GPU time that it cost, null where that
	// cannot be said. StepExcess is by how much it lengthened the steps while
	// it lasted, as a share.
	Effect     *float64 `json:"effect"`
	StepExcess *float64 `json:"step_excess"`
	// Confidence is between 0 and 1: the share of planted cases in which a
	// finding with this evidence was right, where that was measured.
	Confidence float64    `json:"confidence"`
	Severity   Severity   `json:"severity"`
	Evidence   []Evidence `json:"evidence"`
	Remedy     string     `json:"remedy"`
}

// Severity orders findings for a reader.
type Severity string

// What the severities mean to a reader.
const (
	Problem Severity = "problem" // cost time or data and can be mended
	Warning Severity = "warning" // may cost, or did once
	Info    Severity = "info"    // worth knowing: what bounds the work
)

// Evidence points at rows that anyone can look up.
type Evidence struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	Place
	Span
	Rows int64 `json:"rows"`
	// Says is what they show, with figures: "median 1,450 MHz, others 1,980".
	Says string `json:"says"`
}

// Remaining estimates when a run that still goes on will end.
type Remaining struct {
	// StepRate is steps a second over the last phase.
	StepRate float64 `json:"step_rate"`
	// LimitNS is when the scheduler ends the job; StepsUntilLimit how many
	// steps fit until then.
	LimitNS         *int64 `json:"limit_ns"`
	StepsUntilLimit *int64 `json:"steps_until_limit"`
	Note            string `json:"note"`
}

// Data says how far the rest can be trusted.
type Data struct {
	// Missing are what is not there, in words.
	Missing []string `json:"missing"`
	// Unaligned are nodes without a clock bound.
	Unaligned []string `json:"unaligned"`
	// BoundNS is the widest clock bound of the aligned nodes.
	BoundNS int64 `json:"bound_ns"`
	// Coverage is the share of the GPU readings that were due and are there.
	Coverage *float64 `json:"coverage"`
	Notes    []string `json:"notes"`
}
