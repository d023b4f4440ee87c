package probes

import "demur/data"

// A Report is what a target's directions reach and what the controls do, on the
// same folds.
type Report struct {
	Target    string `json:"target"`
	Graded    bool   `json:"graded"`
	Measure   string `json:"measure"` // auroc; concordance where graded
	Requests  int    `json:"requests"`
	Prompts   int    `json:"prompts"`
	Positives int    `json:"positives"`
	// Cells counts prompts by harm (1–2, 4–5) and what was done: harmless complied,
	// harmless refused, harmful complied, harmful refused.
	Cells [4]int `json:"cells"`

	Folds        int     `json:"folds"`
	Seeds        int     `json:"seeds"`
	Permutations int     `json:"permutations"`
	Resamples    int     `json:"resamples"`
	Level        float64 `json:"level"`

	// At is the best site over all rows of Linear, the whitened difference or, for
	// graded targets, ridge regression: where controls and transfer are tested.
	At         Site    `json:"at"`
	AtStrength float64 `json:"at_strength"`
	Linear     Method  `json:"linear"`

	Text     Value     `json:"text"` // TF-IDF of words and letters, logistic
	Methods  []Fitted  `json:"methods"`
	Controls []Control `json:"controls"`
	Warnings []string  `json:"warnings,omitempty"`
}

// Fitted is one method's result. Value is the concordance of rows of one fold
// with each other (see Report.Measure). Value and what is derived from it are of scores
// held out by request, the choice of site and strength made without the fold,
// averaged over the fold seeds.
type Fitted struct {
	Method   Method   `json:"method"`
	Site     Site     `json:"site"` // of the direction that is kept: the best over all rows. Layer −2 where all layers count
	Strength float64  `json:"strength,omitempty"`
	Chosen   []Choice `json:"chosen"` // what was chosen without each fold, most frequent first

	Value      Value            `json:"value"`
	SeedSD     *float64         `json:"seed_sd"`     // between fold seeds
	Difference Value            `json:"difference"`  // Value less Text
	Increment  Value            `json:"increment"`   // of text and probe together over text: the headline
	Over       map[string]Value `json:"over"`        // the same over each of Options.Baselines
	Strata     map[string]Value `json:"strata"`      // Value among refused, complied, harmful, harmless prompts
	Stability  *float64         `json:"stability"`   // mean cosine between the directions of the folds
	TPR1       Value            `json:"tpr_at_1"`    // share of positives found at 1 % false positives
	TPR5       Value            `json:"tpr_at_5"`    // at 5 %
	Accuracy   Value            `json:"accuracy"`    // balanced, cut where the calibrated probability is the training rows' share of positives
	Brier      Value            `json:"brier"`       // of the cross-fitted calibrated probability
	ECE        *float64         `json:"ece"`         // of the same, ten bins of equal size
	P          *float64         `json:"p"`           // of a permutation of labels over requests, the whole procedure repeated; of Logistic at Options.LogisticSite
	NullMean   *float64         `json:"null_mean"`   // of Value under permuted labels
	Null95     *float64         `json:"null_95"`     // its 95th percentile
	MaxNull95  *float64         `json:"max_null_95"` // 95th percentile of the greatest value over sites under permuted labels
	Surface    []SiteValue      `json:"surface"`     // every site, without a choice between them

	// Directions are fitted on all rows at Site; Scores are held out.
	Directions []data.Direction `json:"-"`
	Scores     []data.Score     `json:"-"`
}

// A Choice is how often a site and strength were chosen.
type Choice struct {
	Site     Site    `json:"site"`
	Strength float64 `json:"strength,omitempty"`
	Count    int     `json:"count"`
}

// A SiteValue is what one site reaches. P is that of the maximum over all sites
// under permuted labels (Westfall and Young), so that it holds for all sites
// together.
type SiteValue struct {
	Site     Site     `json:"site"`
	Strength float64  `json:"strength,omitempty"`
	Value    Value    `json:"value"`
	P        *float64 `json:"p"`
}

// A Control is what something reaches that should not know, or knows little.
type Control struct {
	Name  string `json:"name"`
	Value Value  `json:"value"`
	Note  string `json:"note,omitempty"`
}
