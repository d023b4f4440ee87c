package probes

import (
	"math"
	"testing"
)

// The data of these tests, in Python:
//
//	X = [[sin(1+3*i+7*j*j) + (1.5 if j==0 and i%3==0 else 0) + (j==1)*2 for j in range(5)] for i in range(40)]
//	y = [1 if i%3==0 or i%7==1 else 0 for i in range(40)]
func oracleData() (x, y []float64) {
	for i := range 40 {
		for j := range 5 {
			v := math.Sin(float64(1 + 3*i + 7*j*j))
			if j == 0 && i%3 == 0 {
				v += 1.5
			}
			if j == 1 {
				v += 2
			}
			x = append(x, v)
		}
		y = append(y, indicator(i%3 == 0 || i%7 == 1))
	}
	return x, y
}

func TestAgainstScikitLearn(t *testing.T) {
	x, y := oracleData()
	near := func(what string, got, want []float64, tolerance float64) {
		t.Helper()
		for j := range want {
			if math.Abs(got[j]-want[j]) > tolerance {
				t.Errorf("%s: %v, scikit-learn says %v", what, got, want)
				return
			}
		}
	}
	// scikit-learn 1.x: LogisticRegression(C=1/(0.05*40), tol=1e-12).fit(X, y)
	l, err := logisticFit(dense{40, 5, x}, y, 0.05, nil, 1e-9)
	if err != nil {
		t.Fatal(err)
	}
	near("logistic", append(l.w, l.bias), []float64{1.56617851, -0.40707951, 0.63795514, -0.60602058, -0.38330133, -0.20318971}, 1e-6)
	// Ridge(alpha=0.1*trace(Xc.T @ Xc)/5).fit(X, y)
	l, err = direct(Ridge, x, 5, all(40), y, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	near("ridge", append(l.w, l.bias), []float64{0.48552966, -0.140322, 0.20490539, -0.19954693, -0.11472484, 0.47540451292175184}, 1e-8)
	// LinearDiscriminantAnalysis(solver="lsqr", shrinkage=s).fit(X, y).coef_, scaled
	// to length 1, s such that the ridge is that of the total covariance
	near("linear discriminant", scaledBy(l.w, 1/norm(l.w)), []float64{0.82023068, -0.2370533, 0.34615741, -0.33710507, -0.19381068}, 1e-8)
	// roc_auc_score(y, [round(sin(i*i), 1) for i in range(40)])
	score := make([]float64, 40)
	for i := range score {
		score[i] = math.RoundToEven(10*math.Sin(float64(i*i))) / 10
	}
	near("AUROC", []float64{Concordance(y, score)}, []float64{0.6376262626262627}, 1e-12)
}

// A ridge over rows, where they are fewer than coordinates, is one over
// coordinates.
func TestRidgeBothWays(t *testing.T) {
	x, y := oracleData()
	rows := all(5) // of width 40
	l, err := direct(Ridge, x, 40, rows, y, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	c := centre(x, 40, rows)
	var trace float64
	for i := range rows {
		trace += dot(c.row(i), c.row(i))
	}
	lambda := 0.3 * trace / 40
	// The gradient of the penalised squares is 0 at the minimum.
	gradient := scaledBy(l.w, lambda)
	for i := range rows {
		row := x[i*40 : (i+1)*40]
		add(gradient, c.row(i), dot(l.w, row)+l.bias-y[i])
	}
	if n := norm(gradient); n > 1e-9 {
		t.Errorf("the gradient at the minimum is %v", n)
	}
}

// Beyond what scores and labels say: the gradient of the log loss is 0 at what
// is returned, on separable classes too.
func TestLogisticConverges(t *testing.T) {
	x, _ := oracleData()
	y := make([]float64, 40)
	for i := range y {
		y[i] = indicator(x[i*5] > 0.3)
	}
	for _, penalty := range []float64{1, 1e-2, 1e-4} {
		l, err := logisticFit(dense{40, 5, x}, y, penalty, nil, 1e-8)
		if err != nil {
			t.Fatal(err)
		}
		gradient := scaledBy(l.w, penalty)
		for i, v := range l.scores(dense{40, 5, x}) {
			add(gradient, x[i*5:(i+1)*5], (1/(1+math.Exp(-v))-y[i])/40)
		}
		if n := norm(gradient); n > 1e-6 {
			t.Errorf("penalty %g: gradient %v", penalty, n)
		}
	}
}

func TestSmallMeasures(t *testing.T) {
	// By hand: scores 1 2 3 4 5 6, labels 0 0 1 0 1 1.
	y := []float64{0, 0, 1, 0, 1, 1}
	r := newRanking(y, []float64{1, 2, 3, 4, 5, 6}, all(6))
	for _, c := range []struct{ fpr, want float64 }{{0.01, 2. / 3}, {0.33, 2. / 3}, {1. / 3, 1}, {1, 1}} {
		if got := r.rate(nil, c.fpr); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("hit rate at %v is %v, want %v", c.fpr, got, c.want)
		}
	}
	p := []float64{0.1, 0.6, 0.8, 0.3, 0.9, 0.4}
	// Negatives .1 .6 .3: two right of three; positives .8 .9 .4: two of three.
	if got := balanced(p, y, nil); math.Abs(got-2./3) > 1e-12 {
		t.Errorf("balanced accuracy is %v", got)
	}
	// (.01 + .36 + .04 + .09 + .01 + .36)/6
	if got := brier(p, y, nil); math.Abs(got-0.145) > 1e-12 {
		t.Errorf("Brier score is %v", got)
	}
	// Two bins: .1 .3 .4 with one positive, gap |.8 − 1|; .6 .8 .9 with two, |2.3 − 2|.
	if got := calibrationError(p, y, 2); math.Abs(got-0.5/6) > 1e-12 {
		t.Errorf("calibration error is %v", got)
	}
	if got := Concordance([]float64{1, 1}, []float64{2, 3}); !math.IsNaN(got) {
		t.Errorf("one class has an AUROC: %v", got)
	}
}
