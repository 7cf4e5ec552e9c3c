#include "config/key.hpp"

namespace lockstep::config {
namespace {

using optim::Decay;

bool trains_backbone(const C& c) { return c.freeze != nn::Freeze::backbone; }
bool is_polynomial(const C& c) { return c.optim.decay == Decay::polynomial; }
bool is_lars(const C& c) { return c.optim.rule == optim::Rule::lars; }
bool is_lamb(const C& c) { return c.optim.rule == optim::Rule::lamb; }
bool is_muon(const C& c) { return c.optim.rule == optim::Rule::muon; }
bool has_momentum(const C& c) { return c.optim.momentum > 0; }
bool decays(const C& c) { return c.optim.weight_decay > 0; }
bool warms_up(const C& c) { return c.optim.warmup_epochs > 0; }
bool has_final_lr(const C& c) { return is_polynomial(c) || c.optim.decay == Decay::cosine; }
bool is_step(const C& c) { return c.optim.decay == Decay::step; }
bool weighs_apart(const C& c) { return c.optim.class_weights != "auto" || c.data.balance < 1; }

}  // namespace

std::vector<ConfigKey> optim_keys() {
  using Section = C::Optim;
  return {
      key("optim.lr", &C::optim, &Section::lr, "highest learning rate").within(0, 1e6).usual(),
      key("optim.lr-for-batch", &C::optim, &Section::lr_for_batch,
          "linear scaling rule: lr is for this global batch and is scaled to the actual one")
          .at_least(0),
      key("optim.backbone-lr-factor", &C::optim, &Section::backbone_lr_factor,
          "multiplies the learning rate of all layers but the last one")
          .within(0, 1000)
          .needs("freeze", trains_backbone, "no other layer learns"),
      key("optim.rule", &C::optim, &Section::rule,
          "SGD, or for large batches LARS or LAMB, which adapt each weight tensor's rate to its "
          "norm, or Muon, which makes a filter's momentum orthogonal; LARS needs an lr of about 5 "
          "to 30, LAMB of about 0.005, Muon of about 0.02 to 0.2")
          .of_pace()
          .usual(),
      key("optim.trust", &C::optim, &Section::trust,
          "LARS: a tensor's rate is lr * trust * |w| / (|g| + decay * |w|)")
          .within(0, 1)
          .needs("optim.rule", is_lars, "the trust coefficient belongs to 'lars'"),
      key("optim.lars-momentum", &C::optim, &Section::lars_momentum,
          "LARS: lr and trust ratio in the velocity ('inside', MLPerf's reference), the same with "
          "momentum * lr / last lr ('corrected', NVIDIA), or outside of it ('outside', Intel)")
          .needs("optim.rule", is_lars, "this momentum belongs to 'lars'"),
      key("optim.momentum", &C::optim, &Section::momentum,
          "of SGD and LARS; LAMB's beta1; of Muon's filters")
          .within(0, 0.999999),
      key("optim.beta2", &C::optim, &Section::beta2,
          "LAMB: the share that squared gradients keep from step to step")
          .within(0, 0.999999)
          .needs("optim.rule", is_lamb, "second moments belong to 'lamb'"),
      key("optim.epsilon", &C::optim, &Section::epsilon,
          "LAMB: added to the root of the second moment")
          .within(1e-12, 1)
          .needs("optim.rule", is_lamb, "it belongs to 'lamb'"),
      key("optim.nesterov", &C::optim, &Section::nesterov, "Nesterov's momentum")
          .needs("optim.momentum", has_momentum),
      key("optim.newton-schulz", &C::optim, &Section::newton_schulz,
          "Muon: iterations that make a filter's momentum orthogonal")
          .within(1, 10)
          .needs("optim.rule", is_muon, "they belong to 'muon'"),
      key("optim.rest-lr-factor", &C::optim, &Section::rest_lr_factor,
          "Muon: multiplies the learning rate of what learns by SGD: the first convolution, the "
          "last layer, batch norms (with large batches, try 0.1)")
          .within(0, 1000)
          .needs("optim.rule", is_muon, "the rest belongs to 'muon'"),
      key("optim.rest-momentum", &C::optim, &Section::rest_momentum,
          "Muon: momentum of what learns by SGD")
          .within(0, 0.999999)
          .needs("optim.rule", is_muon, "the rest belongs to 'muon'"),
      key("optim.weight-decay", &C::optim, &Section::weight_decay,
          "L2, added to the gradient; LAMB adds it to the step, and Muon's filters have none")
          .within(0, 1)
          .usual(),
      key("optim.decay-norm-and-bias", &C::optim, &Section::decay_norm_and_bias,
          "weight decay on batch norm's scale and shift and on biases, too")
          .needs("optim.weight-decay", decays),
      key("optim.clip-norm", &C::optim, &Section::clip_norm,
          "scale a step's gradients down to this norm of all of them together")
          .within(0, 1e6)
          .of_pace(),
      key("optim.ema", &C::optim, &Section::ema,
          "keep an exponential moving average of the weights with this decay, validate it too and "
          "choose the best checkpoint by it")
          .within(0, 0.999999)
          .of_pace()
          .usual(),
      key("optim.class-weights", &C::optim, &Section::class_weights,
          "what the loss of each class is multiplied by: numbers with commas, in the classes' "
          "order, or auto: the inverse of the class's share of the rows; both are scaled to a mean "
          "of 1 over the training rows, and the validation loss does not use them")
          .if_empty("1")
          .needs("data.balance", weighs_apart, "1 makes all classes come equally often"),
      key("optim.positive-weights", &C::optim, &Section::positive_weights,
          "labels: what the loss of a label that applies is multiplied by: numbers with commas, in "
          "the labels' order, or auto: for each the rows to which it does not apply by those to "
          "which it does (auto,10: at most 10); the validation loss does not use them")
          .if_empty("1"),
      key("optim.huber-delta", &C::optim, &Section::huber_delta,
          "values: from this difference on, in deviations, the loss is linear (Huber), and below "
          "it "
          "squared")
          .within(0, 1e6),
      key("optim.label-smoothing", &C::optim, &Section::label_smoothing,
          "in training; the validation loss does not use it")
          .within(0, 0.999999),
      key("optim.warmup-epochs", &C::optim, &Section::warmup_epochs,
          "linear warm-up; may be a fraction")
          .up_to("epochs")
          .usual(),
      key("optim.warmup-start", &C::optim, &Section::warmup_start,
          "learning rate at the start of warm-up")
          .within(0, 1e6)
          .needs("optim.warmup-epochs", warms_up),
      key("optim.decay", &C::optim, &Section::decay, "after warm-up").usual(),
      key("optim.final-lr", &C::optim, &Section::final_lr, "where cosine and polynomial decay end")
          .within(0, 1e6)
          .needs("optim.decay", has_final_lr, "'cosine' and 'polynomial' end at it"),
      key("optim.milestones", &C::optim, &Section::milestones,
          "epochs at which step decay multiplies")
          .needs("optim.decay", is_step, "milestones belong to 'step'"),
      key("optim.factor", &C::optim, &Section::factor, "by which step decay multiplies")
          .within(0, 1)
          .needs("optim.decay", is_step, "the factor belongs to 'step'"),
      key("optim.power", &C::optim, &Section::power, "of polynomial decay")
          .within(0.01, 100)
          .needs("optim.decay", is_polynomial, "the power belongs to 'polynomial'"),
  };
}

}  // namespace lockstep::config
