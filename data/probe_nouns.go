package data

// A Direction is fitted at one site to tell one thing. The score of an activation
// h is Weights·u + Bias, where u is h less Origin, scaled to length 1 where
// Unit; above Threshold it is positive. Directions of one Group are one probe:
// its score is the mean of theirs.
type Direction struct {
	ID       string `json:"direction_id" parquet:"direction_id"` // digest of all else that is in the row but its figures
	Group    string `json:"group" parquet:"group,dict"`
	Target   string `json:"target" parquet:"target,dict"`
	Method   string `json:"method" parquet:"method,dict"`
	Layer    int    `json:"layer" parquet:"layer"`
	Anchor   string `json:"anchor" parquet:"anchor,dict"`
	Position *int   `json:"position" parquet:"position,optional"` // null where it differs between prompts

	Weights   []float32 `json:"weights" parquet:"weights,list"`
	Origin    []float32 `json:"origin,omitempty" parquet:"origin,list"` // empty: nothing is taken away
	Unit      bool      `json:"unit" parquet:"unit"`
	Bias      float64   `json:"bias" parquet:"bias"`
	Threshold float64   `json:"threshold" parquet:"threshold"`
	// The calibrated probability of a score s of the group is
	// 1/(1 + exp(−(Slope·s + Intercept))); null for graded targets.
	Slope     *float64 `json:"slope" parquet:"slope,optional"`
	Intercept *float64 `json:"intercept" parquet:"intercept,optional"`
	Strength  *float64 `json:"strength" parquet:"strength,optional"` // of the regularisation, chosen by cross-validation

	// What it reached on held-out requests, and what the text alone did on the
	// same folds. Null where undefined.
	Measure     string   `json:"measure" parquet:"measure,dict"` // auroc, or concordance for graded targets
	Value       *float64 `json:"value" parquet:"value,optional"`
	Lo          *float64 `json:"lo" parquet:"lo,optional"`
	Hi          *float64 `json:"hi" parquet:"hi,optional"`
	Text        *float64 `json:"text" parquet:"text,optional"`
	Increment   *float64 `json:"increment" parquet:"increment,optional"` // of text and probe together over text
	IncrementLo *float64 `json:"increment_lo" parquet:"increment_lo,optional"`
	IncrementHi *float64 `json:"increment_hi" parquet:"increment_hi,optional"`
	P           *float64 `json:"p" parquet:"p,optional"` // permutation, selection included
	Level       float64  `json:"level" parquet:"level"`  // of the intervals

	Controls  map[string]float64 `json:"controls,omitempty" parquet:"controls"`
	Folds     string             `json:"folds" parquet:"folds,dict"` // how requests were split
	Requests  int                `json:"requests" parquet:"requests"`
	Prompts   int                `json:"prompts" parquet:"prompts"`
	Positives int                `json:"positives" parquet:"positives"` // prompts; 0 for graded targets

	Model        string   `json:"model" parquet:"model,dict"`
	ModelDigest  string   `json:"model_digest" parquet:"model_digest,dict"`
	TemplateHash string   `json:"template_sha256" parquet:"template_sha256,dict"`
	Warnings     []string `json:"warnings,omitempty" parquet:"warnings,list"`
}

// A Score is what a direction says of a prompt that it was not fitted to.
type Score struct {
	PromptID    string   `json:"prompt_id" parquet:"prompt_id"`
	RequestID   string   `json:"request_id" parquet:"request_id"`
	Variant     string   `json:"variant" parquet:"variant,dict"`
	Group       string   `json:"group" parquet:"group,dict"` // of Direction
	Target      string   `json:"target" parquet:"target,dict"`
	Method      string   `json:"method" parquet:"method,dict"`
	Layer       *int     `json:"layer" parquet:"layer,optional"` // chosen without the prompt's fold; null where all layers count
	Anchor      string   `json:"anchor" parquet:"anchor,dict"`
	Fold        int      `json:"fold" parquet:"fold"` // held out, of the first fold seed; −1 for a prompt without a label, scored by the direction itself
	Score       float64  `json:"score" parquet:"score"`
	Probability *float64 `json:"probability" parquet:"probability,optional"` // calibrated without the prompt's fold
	Label       *float64 `json:"label" parquet:"label,optional"`             // 0 or 1, or the graded value
}

// A Steered is what a model did with a prompt while a direction was added to its
// stream, or taken out of it: a prompt under one condition and one sampling. The
// rows of Operation none are the model left alone.
type Steered struct {
	PromptID  string `json:"prompt_id" parquet:"prompt_id,dict"`
	RequestID string `json:"request_id" parquet:"request_id,dict"`
	Variant   string `json:"variant" parquet:"variant,dict"`

	// The condition.
	Direction string   `json:"direction" parquet:"direction,dict"`       // what it tells, such as refusal; of a control, the direction that it stands beside; empty for none
	Control   string   `json:"control" parquet:"control,dict"`           // random, orthogonal or shuffled; empty for the direction itself
	Draw      int      `json:"draw" parquet:"draw"`                      // of the control, from 1; 0 for the direction itself
	Fold      int      `json:"fold" parquet:"fold"`                      // the direction was fitted without the requests of this fold; −1 where it was given
	Anchor    string   `json:"anchor" parquet:"anchor,dict"`             // where it was fitted; it is applied at every position
	Layer     *int     `json:"layer" parquet:"layer,optional"`           // where it is applied; null at all blocks
	Operation string   `json:"operation" parquet:"operation,dict"`       // none, add or ablate
	Dose      *float64 `json:"dose" parquet:"dose,optional"`             // of what is added, in the unit; null for ablate and none
	Unit      string   `json:"unit" parquet:"unit,dict"`                 // gap, the distance of the class means along the direction, or norm, the mean length of the stream there; empty without a dose
	Gaps      *float64 `json:"gaps" parquet:"gaps,optional"`             // what is added, in class gaps
	NormRatio *float64 `json:"norm_ratio" parquet:"norm_ratio,optional"` // its length over the mean length of the stream there

	Temperature float64 `json:"temperature" parquet:"temperature"`
	Seed        uint32  `json:"seed" parquet:"seed"`

	// What the model did.
	Outcome    string   `json:"outcome" parquet:"outcome,dict"` // refuse, comply, degenerate, unclear; error
	Label      Label    `json:"label" parquet:"label,dict"`     // the judge's
	Reason     string   `json:"reason" parquet:"reason,dict"`   // why it is degenerate, or the kind of error
	Tokens     int      `json:"tokens" parquet:"tokens"`
	StopReason string   `json:"stop_reason" parquet:"stop_reason,dict"`
	Surprise   *float64 `json:"surprise" parquet:"surprise,optional"` // nats a token, of the text to the model left alone
	Text       *string  `json:"text" parquet:"text,optional"`         // null unless it was asked for

	// What it says and how it would go on, exactly.
	PRefuse      *float64 `json:"p_refuse" parquet:"p_refuse,optional"`           // of the prediction, as in predictions
	HarmRating   *float64 `json:"harm_rating" parquet:"harm_rating,optional"`     // expected, 1 to 5
	PHarm        *float64 `json:"p_harm" parquet:"p_harm,optional"`               // P("Certainly") against "No" to: could this cause harm?
	RefusalLogit *float64 `json:"refusal_logit" parquet:"refusal_logit,optional"` // log odds that the answer opens as refusals do
	LogitShift   *float64 `json:"logit_shift" parquet:"logit_shift,optional"`     // the same less that of the model left alone
	KL           *float64 `json:"kl" parquet:"kl,optional"`                       // nats, of the next token's distribution from that of the model left alone

	PlanID string `json:"plan_id" parquet:"plan_id,dict"` // of the steering: equal plans, equal conditions
}

// Units of a dose.
const (
	UnitGap  = "gap"
	UnitNorm = "norm"
)

// Operations of a Steered.
const (
	SteerNone          = "none"
	SteerAdd           = "add"
	SteerAblate        = "ablate"         // out of the stream
	SteerAblateWriters = "ablate_writers" // out of what each block's parts write to it
)

// Outcomes of a Steered.
const (
	SteerRefuse     = "refuse"
	SteerComply     = "comply"
	SteerDegenerate = "degenerate"
	SteerUnclear    = "unclear"
	SteerError      = "error"
)
