#include "config/key.hpp"

namespace lockstep::config {
namespace {

bool has_blocks(const C& c) { return c.data.shuffle != lockstep::data::Shuffle::global; }
bool mixes_blocks(const C& c) { return c.data.shuffle == lockstep::data::Shuffle::block; }
bool mixes_all(const C& c) { return c.data.shuffle == lockstep::data::Shuffle::global; }
bool may_cut_boxes(const C& c) { return c.data.crop != CropChoice::random; }
bool has_operations(const C& c) { return c.data.randaugment > 0; }
bool names_validation(const C& c) { return !c.data.val.empty(); }
bool skips_rows(const C& c) { return c.data.on_bad_row == OnBadRow::skip; }

}  // namespace

std::vector<ConfigKey> data_keys() {
  using Section = C::Data;
  return {
      key("data.train", &C::data, &Section::train,
          "training set: a shard, a folder of shards, or any HDF5 file of images and labels; a "
          "pattern like 'part*.h5' names several")
          .of_a_node()
          .names_input()
          .usual(),
      key("data.val", &C::data, &Section::val, "validation set")
          .if_empty("val/ next to the training set's train/, in a folder that pack made")
          .of_a_node()
          .names_input()
          .usual(),
      key("data.held-out", &C::data, &Section::held_out,
          "share of each class's rows of the training set that is not trained on, and is the "
          "validation set; chosen by the seed")
          .within(0, 0.9),
      key("data.images", &C::data, &Section::images,
          "files that are not shards: name of the data set of images; several, with commas: the "
          "channels of one after those of the other")
          .if_empty("found by its shape and name")
          .for_external(),
      key("data.labels", &C::data, &Section::labels,
          "the same for the labels; FILE:NAME where they lie in another file")
          .if_empty("found by its shape and name")
          .for_external(),
      key("data.val-images", &C::data, &Section::val_images, "name in the validation set")
          .if_empty("as data.images")
          .needs("data.val", names_validation),
      key("data.val-labels", &C::data, &Section::val_labels, "the same for the labels")
          .if_empty("as data.labels")
          .needs("data.val", names_validation),
      key("data.channels", &C::data, &Section::channels,
          "files that are not shards: the channels to take, in this order, by name or number from "
          "0, with commas")
          .if_empty("all")
          .for_external(),
      key("data.layout", &C::data, &Section::layout,
          "files that are not shards: position of the channels")
          .for_external(),
      key("data.element", &C::data, &Section::element,
          "files that are not shards: what the network is given of their numbers, each of which "
          "must fit (float64 is rounded to float32); auto: uint8 where some rows show that they "
          "are "
          "256 levels, else the smallest that holds the file's kind of numbers")
          .for_external(),
      key("data.range", &C::data, &Section::range,
          "files that are not shards: range of floats that become uint8, as 256 levels, rounded; "
          "auto: 0-1 or 0-255, inferred from some rows")
          .for_external(),
      key("data.no-data", &C::data, &Section::no_data,
          "files that are not shards: the number that stands for no data, or nan: left out of mean "
          "and deviation, and 0 after normalisation; none: what the file says is no data is data")
          .if_empty("what the file's attributes say is no data is an error")
          .for_external(),
      key("data.clip", &C::data, &Section::clip,
          "limits LOW,HIGH between which values are brought before mean and deviation: numbers, or "
          "percentiles of each channel such as p2,p98, of at most 1,024 rows, which the run keeps; "
          "with semicolons: for each channel its own")
          .if_empty("none"),
      key("data.curve", &C::data, &Section::curve,
          "what values become then: log1p, the logarithm of 1 + v, or asinh, which takes negative "
          "ones, too"),
      key("data.task", &C::data, &Section::task,
          "files that are not shards: what to learn: one class of a row; each of several labels, 0 "
          "or 1, also where one row in 10 or less is not one-hot; or numbers; auto: classes or "
          "labels, by the labels' form")
          .for_external(),
      key("data.unknown", &C::data, &Section::unknown,
          "labels and values: which numbers mean that one is not known, so that it counts nowhere")
          .for_external(),
      key("data.classes", &C::data, &Section::classes,
          "files that are not shards: number of classes (or labels, or values); auto: those named "
          "in the file, else the largest label + 1")
          .within(0, 1 << 20)
          .or_auto()
          .for_external(),
      key("data.cache-mb", &C::data, &Section::cache_mb,
          "chunked files: memory of each rank for decoded chunks (10^6 bytes, or a size such as "
          "1GB)")
          .within(1, 1 << 20)
          .size(1e6)
          .bookkeeping()
          .of_a_node(),
      key("data.shuffle", &C::data, &Section::shuffle,
          "order of an epoch: all rows mixed; blocks of rows in random order, with the rows of "
          "some blocks mixed (reads large pieces); or each node keeps its rows and mixes them"),
      key("data.block", &C::data, &Section::block,
          "shuffle = block, node: consecutive rows of a block; auto: those of a chunk, or of 4 MB")
          .within(0, 1 << 30)
          .or_auto()
          .needs("data.shuffle", has_blocks, "it mixes all rows"),
      key("data.window", &C::data, &Section::window,
          "shuffle = block: number of blocks whose rows are mixed")
          .within(1, 1 << 20)
          .needs("data.shuffle", mixes_blocks, "'block' mixes the rows of some blocks"),
      key("data.balance", &C::data, &Section::balance,
          "how far an epoch evens the classes out: one of n rows comes n^(1 - x) times as often as "
          "one of one row: 0 as the rows are, 1 all equally often; the epoch keeps its length, and "
          "rows of small classes come more than once")
          .within(0, 1)
          .needs("data.shuffle", mixes_all, "the other orders visit the rows as they lie"),
      key("data.readahead", &C::data, &Section::readahead,
          "rows to request ahead of those being read; auto: none, and of chunked files enough to "
          "keep the threads busy")
          .within(0, 1 << 30)
          .or_auto()
          .bookkeeping()
          .of_a_node(),
      key("data.stage", &C::data, &Section::stage,
          "folder on each node (a local disk, /dev/shm) to which the training set is copied while "
          "it is first read")
          .bookkeeping()
          .of_a_node(),
      key("data.read", &C::data, &Section::read,
          "how to read contiguous rows; mmap: from pages that a node's ranks share")
          .bookkeeping()
          .of_a_node(),
      key("data.crop", &C::data, &Section::crop,
          "the part of an image to train on: a window at a random place, or a box of "
          "random size and shape, resized; auto: the latter for JPEGs"),
      key("data.size", &C::data, &Section::size,
          "side of the network's input; auto: 224 for JPEGs, else the size of the rows")
          .within(0, 65535)
          .or_auto()
          .usual(),
      key("data.resize", &C::data, &Section::resize,
          "resize images to this shorter side before cutting out a random window or, in "
          "validation, the centre; auto: 256/224 of the input's side, for JPEGs and random-resized")
          .within(0, 65535)
          .or_auto(),
      key("data.min-area", &C::data, &Section::min_area,
          "random-resized: smallest share of an image's area")
          .within(0.0001, 1)
          .needs("data.crop", may_cut_boxes, "'random' takes windows of one size"),
      key("data.pad", &C::data, &Section::pad,
          "random crop from an image padded by this many pixels")
          .at_least(0)
          .usual(),
      key("data.flip", &C::data, &Section::flip, "flip horizontally with probability 1/2").usual(),
      key("data.dihedral", &C::data, &Section::dihedral,
          "turn and mirror square images to one of their eight positions, each as often: for what "
          "has no up and down, as seen from above or through a microscope"),
      key("data.channel-dropout", &C::data, &Section::channel_dropout,
          "probability that a channel of an image becomes its mean; one of them always stays")
          .within(0, 0.99),
      key("data.cutout", &C::data, &Section::cutout, "side of a random square that is cut out")
          .at_least(0),
      key("data.brightness", &C::data, &Section::brightness,
          "colour jitter: levels are multiplied by 1 - x to 1 + x")
          .within(0, 100),
      key("data.contrast", &C::data, &Section::contrast, "colour jitter, the same for contrast")
          .within(0, 100),
      key("data.saturation", &C::data, &Section::saturation,
          "colour jitter, the same for saturation")
          .within(0, 100),
      key("data.hue", &C::data, &Section::hue,
          "colour jitter: the hue is turned by up to this share of the circle")
          .within(0, 0.5),
      key("data.randaugment", &C::data, &Section::randaugment,
          "RandAugment: number of random operations on each image (usual: 2)")
          .within(0, 100),
      key("data.randaugment-magnitude", &C::data, &Section::randaugment_magnitude, "their strength")
          .within(0, 30)
          .needs("data.randaugment", has_operations),
      key("data.erase", &C::data, &Section::erase, "random erasing: probability").within(0, 1),
      key("data.mixup", &C::data, &Section::mixup,
          "mixup: alpha of the Beta distribution of the shares (usual: 0.2)")
          .within(0.01, 100)
          .or_zero(),
      key("data.cutmix", &C::data, &Section::cutmix,
          "CutMix: the same (usual: 1); with both, each batch gets one of them")
          .within(0.01, 100)
          .or_zero(),
      key("data.workers", &C::data, &Section::workers,
          "threads of each rank that read and augment; auto: as many of the spare cores as help, "
          "which is measured")
          .within(0, most_threads)
          .or_auto()
          .bookkeeping()
          .of_a_node(),
      key("data.slots", &C::data, &Section::slots, "batches to prepare ahead")
          .within(1, most_threads)
          .bookkeeping()
          .of_a_node(),
      key("data.keep-last", &C::data, &Section::keep_last,
          "train on the last, smaller batch of an epoch instead of dropping it"),
      key("data.on-bad-row", &C::data, &Section::on_bad_row,
          "what a training row with a wrong checksum, JPEG or size does: end the run, or let "
          "another row, drawn by seed, epoch and row, take its place")
          .bookkeeping(),
      key("data.bad-rows-limit", &C::data, &Section::bad_rows_limit,
          "skip: an epoch with more bad rows than this ends the run")
          .at_least(0)
          .needs("data.on-bad-row", skips_rows, "the first bad row ends the run")
          .bookkeeping(),
  };
}

}  // namespace lockstep::config
