#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/backend/precision.hpp"
#include "lockstep/backend/recompute.hpp"
#include "lockstep/backend/winograd.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/config/choices.hpp"
#include "lockstep/config/step_range.hpp"
#include "lockstep/data/external/external.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/optim/rule.hpp"
#include "lockstep/optim/schedule.hpp"

namespace lockstep::config {

/// The most threads that any key or option accepts.
constexpr std::size_t most_threads = 1024;
/// The most rows that a batch may have.
constexpr std::size_t most_batch_rows = 1 << 24;
/// The most shards that a batch may have.
constexpr std::size_t most_shards = 1 << 16;

/// The most stages that a network may be cut into.
constexpr std::size_t most_stages = 1 << 10;
/// The most tiles that an image may be cut into.
constexpr std::size_t most_tiles = 1 << 10;

/// The whole configuration of a training run, as one plain struct. Each field is one key of the
/// command line and of the TOML file; config_keys() lists them with their help. 0 or "" means "not
/// given" where the key's help says so; resolve() then decides.
struct Config {
  std::string model = "resnet20";
  std::size_t epochs = 5;
  std::size_t batch = 0;
  std::size_t batch_per_rank = 0;
  std::size_t accumulate = 1;
  std::size_t shards = 0;  ///< 0: each rank's batch is one
  std::size_t lanes = 0;
  std::size_t stages = 1;  ///< of the network, each on another rank
  std::size_t tiles = 1;   ///< of each image, each on another rank
  PipelineOrder pipeline = PipelineOrder::one_f_one_b;
  backend::Precision precision = backend::Precision::fp32;
  bool deterministic = false;
  Switch fuse_norms = Switch::automatic;
  Switch graph = Switch::automatic;
  Switch tune = Switch::automatic;
  std::string tune_cache;
  backend::Winograd winograd{backend::Winograd::Mode::automatic, {}};
  backend::Recompute recompute;
  std::size_t memory_limit = 0;
  std::uint64_t seed = 1;
  std::string init;
  HeadChoice head = HeadChoice::automatic;
  std::string init_channels;
  nn::Freeze freeze = nn::Freeze::none;
  BackendChoice backend = BackendChoice::automatic;
  std::size_t threads = 0;
  std::string out;
  std::string resume;
  std::uint64_t stop_after = 0, stop_after_epoch = 0;
  std::string notify;
  StepRange trace;

  struct Model {
    nn::Stem stem = nn::Stem::of_model;
    nn::BlockKind block = nn::BlockKind::of_model;
    std::string blocks;
    std::size_t width = 0, bottleneck_width = 0, groups = 0;
    nn::Shortcut shortcut = nn::Shortcut::family_default;
    bool zero_init_residual = false;
    std::size_t norm_ranks = 1;
  } model_options;

  struct Data {
    std::string train, val;
    std::string images, labels, val_images, val_labels, channels, no_data, clip;
    lockstep::data::Curve curve = lockstep::data::Curve::linear;
    float held_out = 0;
    ImageLayout layout = ImageLayout::automatic;
    ElementChoice element = ElementChoice::automatic;
    FloatRange range = FloatRange::automatic;
    TaskChoice task = TaskChoice::automatic;
    lockstep::data::UnknownLabels unknown = lockstep::data::UnknownLabels::none;
    std::size_t classes = 0;
    std::size_t cache_mb = 256;
    lockstep::data::Shuffle shuffle = lockstep::data::Shuffle::global;
    std::size_t block = 0;
    std::size_t window = 16;
    float balance = 0;
    std::size_t readahead = 0;
    std::string stage;
    ReadBy read = ReadBy::pread;
    CropChoice crop = CropChoice::automatic;
    std::size_t size = 0;
    std::size_t resize = 0;
    float min_area = 0.08f;
    std::size_t pad = 0;
    bool flip = false, dihedral = false;
    float channel_dropout = 0;
    std::size_t cutout = 0;
    float brightness = 0, contrast = 0, saturation = 0, hue = 0;
    std::size_t randaugment = 0;
    std::size_t randaugment_magnitude = 9;
    float erase = 0;
    float mixup = 0, cutmix = 0;
    std::size_t workers = 0;
    std::size_t slots = 4;
    bool keep_last = false;
    OnBadRow on_bad_row = OnBadRow::error;
    std::size_t bad_rows_limit = 100;
  } data;

  struct Optim {
    float lr = 0.1f;
    std::size_t lr_for_batch = 0;
    float backbone_lr_factor = 1;
    lockstep::optim::Rule rule = lockstep::optim::Rule::sgd;
    float trust = 0.001f;
    lockstep::optim::LarsMomentum lars_momentum = lockstep::optim::LarsMomentum::inside;
    float momentum = 0.9f;
    float beta2 = 0.999f;
    float epsilon = 1e-6f;
    bool nesterov = false;
    std::size_t newton_schulz = 5;  ///< iterations
    float rest_lr_factor = 1;
    float rest_momentum = 0.9f;
    float weight_decay = 1e-4f;
    bool decay_norm_and_bias = true;
    float clip_norm = 0;
    double ema = 0;
    float label_smoothing = 0;
    float huber_delta = 0;
    std::string class_weights, positive_weights;
    float warmup_epochs = 0;
    float warmup_start = 0;
    lockstep::optim::Decay decay = lockstep::optim::Decay::cosine;
    float final_lr = 0;
    std::vector<std::uint64_t> milestones;
    float factor = 0.1f;
    float power = 2;
  } optim;

  struct Eval {
    std::string best;  ///< a score's name; empty: by the task
    std::size_t batch = 0;
    std::size_t every_epochs = 1;
  } eval;

  struct Checkpoint {
    std::uint64_t every_steps = 0;
    std::size_t every_epochs = 1;
    double every_minutes = 15;
    std::size_t keep = 3;
    bool background = true;
  } checkpoint;

  struct Comm {
    float bucket_mb = 0;
    AllReduceChoice all_reduce = AllReduceChoice::automatic;
    Wire wire = Wire::fp32;
    std::size_t power_sgd = 0;  ///< the rank of products; 0: gradients travel whole
    std::size_t power_sgd_from_epoch = 0;
    double deadline_s = 120;
    bool share_gpu = false;
    bool allow_different_builds = false;
  } comm;

  struct Sync {
    std::size_t every = 1;
    SyncGroup group = SyncGroup::node;
    std::size_t from_epoch = 0;
    float outer_momentum = 0;
    float outer_lr = 1;
    bool gossip = false;
    std::size_t gossip_late = 1;  ///< steps
  } sync;

  struct Clock {
    double row_ms = 0, step_ms = 0;
    std::string profile;
    double efficiency = 0.5;
  } clock;

  struct Liveness {
    double timeout_s = 20;
  } liveness;

  struct Walltime {
    double margin_s = 20;
  } walltime;

  struct Audit {
    std::uint64_t every_steps = 100;
  } audit;

  struct Binding {
    bool require = false;
  } binding;

  struct Preflight {
    bool check = false, require = false;
  } preflight;

  struct Metrics {
    std::string textfile, listen;
    bool tensorboard = false;
  } metrics;

  struct Cost {
    double per_core_hour = 0, per_gpu_hour = 0;
  } cost;
};

/// Sets one key from the text of a command line. Throws InputError for an unknown key, naming it
/// and the nearest known one, and for a value that does not fit.
void set_key(Config& config, const std::string& name, const std::string& value);

/// Applies a TOML text on top of `config`. Returns the names of the keys that it sets. Errors name
/// `origin`, the line and the key.
std::set<std::string> apply_toml(Config& config, std::string_view text, const std::string& origin);
/// What a TOML text makes of the defaults.
Config config_in(std::string_view text, const std::string& origin);

/// The configuration as a TOML text that apply_toml() reads back to the same struct.
std::string to_toml(const Config& config);
/// The same, of the keys whose values differ from those of `other`.
std::string to_toml_where_other(const Config& config, const Config& other);

/// How many replicas train, where each is as many ranks as stages and tiles make. Throws InputError
/// where the ranks cannot be shared so.
comm::GridShape grid_shape(const Config& config, int ranks);

/// Throws InputError, beginning with what has neither stages nor tiles, where there are some.
void require_whole_replicas(const Config& config, std::string_view what);

/// Fills in what was left open, now that the number of ranks is known, and checks every range
/// and combination. Afterwards `batch` is the global batch, `batch_per_rank` is 0 (it follows from
/// batch and replicas, so that the saved configuration fits any number), `out` is set and lr is
/// final. Throws InputError naming the keys, the values and what would be right.
void resolve(Config& config, int ranks);

/// Into how many equal parts a batch is cut before each is trained on: its shards, or the ranks'.
inline std::size_t sharers(const Config& config, int replicas) {
  return config.shards > 0 ? config.shards : static_cast<std::size_t>(replicas);
}

/// Throws InputError where there are shards, but not one for each of the ranks.
void require_shards(const Config& config, std::size_t ranks);

/// How many micro-batches each rank's batch is cut into, at most.
inline std::size_t micro_batches(const Config& config, int replicas) {
  const auto ranks = static_cast<std::size_t>(replicas);
  return config.shards > 0 ? (config.shards + ranks - 1) / ranks : config.accumulate;
}

/// Why not all steps of a resolved configuration repeat the work of one: "graph = true repeats one
/// step's work, and with ..."; empty where they do.
std::string why_steps_differ(const Config& config, int replicas);

/// The keys that change results and differ, each as "optim.lr (0.1, now 0.2)".
std::vector<std::string> differences(const Config& before, const Config& now);

}  // namespace lockstep::config
