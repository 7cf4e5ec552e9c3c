#include "lockstep/model/checkpoint.hpp"

#include <csignal>
#include <limits>

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::backend;
using namespace lockstep::test;
using Catch::Contains;

TEST_CASE("a checkpoint gives back every value and every header field", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "step-00000123.h5";
  const CheckpointHeader header = some_header();
  const FakeParameters saved(small_model(), 0.125f);
  write_checkpoint(path, header, saved);

  FakeParameters loaded(small_model(), -5);
  const auto gradients = loaded.plain(Part::gradients, 0);
  load_tensors(path, loaded, true);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(loaded.plain(Part::weights, i) == saved.plain(Part::weights, i));
    if (i < 2) CHECK(loaded.plain(Part::momentum, i) == saved.plain(Part::momentum, i));
  }
  CHECK(loaded.plain(Part::gradients, 0) == gradients);

  const auto tensors = list_tensors(path);
  REQUIRE(tensors.size() == 5);
  CHECK(tensors[0].name == "weights/bn1.running_mean");
  CHECK(tensors[1].shape == std::vector<std::size_t>{2, 3, 3, 3});
  CHECK(tensors[4].name == "momentum/fc.weight");
  CHECK(tensors[1].crc32c != tensors[3].crc32c);

  const CheckpointHeader got = read_header(path);
  CHECK(got.progress.step == 123);
  CHECK(got.progress.epoch == 3);
  CHECK(got.progress.batch == 7);
  CHECK(got.progress.loss_sum == 1.0 / 3);
  CHECK(got.progress.rows == 896);
  CHECK(got.progress.top1 == 500);
  CHECK(got.progress.bad_rows == header.progress.bad_rows);
  CHECK(got.progress.best_score == 0.875);
  CHECK(got.progress.best_epoch == 2);
  CHECK(got.config == header.config);
  CHECK(got.backend == header.backend);
  CHECK(got.build == header.build);
  CHECK(got.world == 6);
  CHECK(got.replicas == 2);
  CHECK(got.input.rows == 50000);
  CHECK(got.input.rows_hash == 0x89abcdef);
  CHECK(got.metrics_bytes == 4711);
  CHECK(got.input.classes == header.input.classes);
  CHECK(got.input.mean == header.input.mean);
  CHECK(got.input.stddev == header.input.stddev);
  CHECK(got.input.width == 32);
}

TEST_CASE("a kept average is in the checkpoint, for a resume and to take the weights' place",
          "[checkpoint]") {
  const Folder folder;
  const auto with = folder.path / "with.h5", without = folder.path / "without.h5";
  FakeParameters saved(small_model(), 0.125f);
  write_checkpoint(without, some_header(), saved);
  saved.start_average();
  const std::vector<float> kernel(54, 3), mean(2, 4);
  saved.import_slice(Part::average, 1, kernel);
  saved.import_slice(Part::average, 2, mean);
  write_checkpoint(with, some_header(), saved);
  const auto tensors = list_tensors(with);
  REQUIRE(tensors.size() == 8);
  CHECK(tensors[5].name == "ema/bn1.running_mean");
  CHECK(tensors[7].name == "ema/fc.weight");

  FakeParameters resumed(small_model(), -5);
  resumed.start_average();
  load_tensors(with, resumed, true);
  CHECK(resumed.plain(Part::average, 0) == saved.plain(Part::weights, 0));
  CHECK(resumed.plain(Part::average, 1) == kernel);
  CHECK(resumed.plain(Part::average, 2) == mean);
  CHECK(resumed.plain(Part::weights, 1) == saved.plain(Part::weights, 1));
  load_tensors(without, resumed, true);
  CHECK(resumed.plain(Part::average, 1) == saved.plain(Part::weights, 1));

  FakeParameters evaluated(small_model(), -5);
  load_average(with, evaluated);
  CHECK(evaluated.plain(Part::weights, 1) == kernel);
  CHECK(evaluated.plain(Part::weights, 2) == mean);
  load_tensors(with, evaluated, true);  // keeps none
  CHECK(evaluated.plain(Part::weights, 1) == saved.plain(Part::weights, 1));
  CHECK_THROWS_WITH(load_average(without, evaluated),
                    Contains("without.h5: holds no average of the weights"));
  CHECK_THROWS_WITH(load_average(folder.path / "none.h5", evaluated), Contains("none.h5"));
}

TEST_CASE("second moments are in the checkpoint of a rule that has them, and must be there for it",
          "[checkpoint]") {
  const Folder folder;
  const auto with = folder.path / "with.h5", without = folder.path / "without.h5";
  FakeParameters saved(small_model(), 0.125f);
  write_checkpoint(without, some_header(), saved);
  const std::size_t bytes = checkpoint_bytes(some_header(), saved);
  saved.start_second_moments();
  const std::size_t floats = saved.layout().size * sizeof(float);
  CHECK(checkpoint_bytes(some_header(), saved) >= bytes + floats);
  CHECK(checkpoint_bytes(some_header(), saved) <= bytes + floats + 4096);
  write_checkpoint(with, some_header(), saved);
  const auto tensors = list_tensors(with);
  REQUIRE(tensors.size() == 7);  // running statistics have none
  CHECK(tensors[5].name == "second_moments/conv1.weight");
  CHECK(tensors[6].name == "second_moments/fc.weight");

  FakeParameters resumed(small_model(), -5);
  resumed.start_second_moments();
  load_tensors(with, resumed, true);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(resumed.plain(Part::second_moments, i) == saved.plain(Part::second_moments, i));
  CHECK_THROWS_WITH(load_tensors(without, resumed, true),
                    Contains("without.h5: holds no second moments") && Contains("optim.rule"));
  CHECK_NOTHROW(load_tensors(without, resumed, false));
  FakeParameters evaluated(small_model(), -5);
  CHECK_NOTHROW(load_tensors(with, evaluated, true));  // keeps none
}

TEST_CASE("an exchange's name and state come back; the exact one takes no byte", "[checkpoint]") {
  const Folder folder;
  const auto exact = folder.path / "exact.h5", other = folder.path / "other.h5";
  CheckpointHeader header = some_header();
  write_checkpoint(exact, header, FakeParameters(small_model()));
  CHECK(read_header(exact).exchange == "exact");
  CHECK(list_exchange_state(exact).empty());
  CHECK(read_text(exact).find("exchange") == std::string::npos);
  header.exchange = "local";
  header.exchange_state = {{"error of rank 0", std::string("\0\1", 2)},
                           {"since", std::string(1 << 20, 'x')}};
  write_checkpoint(other, header, FakeParameters(small_model()));
  CHECK(read_header(other).exchange == "local");
  CHECK(read_header(other).exchange_state.empty());  // it may be larger than memory
  CHECK(list_exchange_state(other) == std::vector<std::string>{"error of rank 0", "since"});
  for (const auto& [name, bytes] : header.exchange_state)
    CHECK(read_exchange_state(other, name) == bytes);
  CHECK_THROWS_WITH(read_exchange_state(other, "rank-7"),
                    Contains("other.h5") && Contains("exchange/rank-7"));
}

TEST_CASE("parts of an exchange's state follow a checkpoint, and each has its checksum",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "step-00000007.h5";
  CheckpointHeader header = some_header();
  header.exchange = "gossip";
  header.exchange_state = {{"steps", "7"}};
  const std::string all = "first" + std::string(3000, 'x');
  CheckpointImage image = make_checkpoint(path, header, FakeParameters(small_model()), nullptr,
                                          {{"rank-0", 5}, {"rank-1", 3000}});
  PendingPieces file(path, image.bytes());
  for (std::size_t at = 0; at < all.size(); at += 1000) {  // pieces need not be parts
    image.count(std::string_view(all).substr(at, 1000));
    file.add(std::string_view(all).substr(at, 1000));
  }
  file.commit(image.seal());
  const auto parts = list_exchange_parts(path);
  REQUIRE(parts.size() == 2);
  CHECK((parts[1].name == "rank-1" && parts[1].bytes == 3000));
  CHECK(list_exchange_state(path) == std::vector<std::string>{"steps"});
  CHECK(read_header(path).format == format_with_parts);
  std::string second(3000, ' ');
  ExchangePartReader reader(path, "rank-1");
  reader.read(std::as_writable_bytes(std::span(second)).first(1));
  reader.read(std::as_writable_bytes(std::span(second)).subspan(1));
  CHECK(second == std::string(3000, 'x'));
  CHECK_NOTHROW(verify_exchange_parts(path));
  CHECK_THROWS_WITH(ExchangePartReader(path, "rank-7"),
                    Contains("step-00000007.h5: ") && Contains("rank-7"));
  const std::string whole = read_text(path);
  std::string altered = whole;
  altered[altered.size() - 9] = 'y';
  write_text_atomically(path, altered);
  CHECK_NOTHROW(verify_checkpoint(path));
  CHECK_NOTHROW(verify_exchange_parts(path, 0, 2));
  CHECK_THROWS_WITH(verify_exchange_parts(path, 1, 2),
                    Contains("the part rank-1 of the exchange's state is torn or was altered"));
  CHECK_THROWS_WITH(list_tensors(path), Contains("rank-1"));
  for (const std::size_t length : {whole.size() - 1, whole.size() - 3001, std::size_t{600}}) {
    write_text_atomically(path, whole.substr(0, length));
    CHECK_THROWS_WITH(verify_checkpoint(path), Contains("torn"));
  }
  write_text_atomically(path, whole + 'x');
  CHECK_THROWS_WITH(verify_checkpoint(path), Contains("torn"));
}

TEST_CASE("a checkpoint of another task or score has format 6 and says both", "[checkpoint]") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "step-00000007.h5";
  CheckpointHeader header = some_header();
  write_checkpoint(path, header, FakeParameters(small_model()));
  const CheckpointHeader usual = read_header(path);
  CHECK(usual.format == checkpoint_format);
  CHECK((usual.input.task == data::Task::classes && usual.progress.score.empty()));
  header.progress.score = "top-5";
  write_checkpoint(path, header, FakeParameters(small_model()));
  CHECK(read_header(path).format == format_with_task);
  CHECK(read_header(path).progress.score == "top-5");
  header.input.task = data::Task::values;
  header.input.target_mean = {101325, 0.5f};
  header.input.target_stddev = {500, 0.25f};
  header.progress.score = "R2";
  header.progress.best_score = -3.5;
  header.progress.sums = {17, 1.0 / 3, 0};
  write_checkpoint(path, header, FakeParameters(small_model()));
  const CheckpointHeader values = read_header(path);
  CHECK(values.format == format_with_task);
  CHECK(values.input.task == data::Task::values);
  CHECK(values.input.target_mean == header.input.target_mean);
  CHECK(values.input.target_stddev == header.input.target_stddev);
  CHECK((values.progress.score == "R2" && values.progress.best_score == -3.5));
  CHECK(values.progress.sums == header.progress.sums);
  header.input.task = data::Task::labels;
  write_checkpoint(path, header, FakeParameters(small_model()));
  CHECK(read_header(path).input.task == data::Task::labels);
  CHECK(read_header(path).input.target_mean.empty());
}

TEST_CASE("ten thousand long class names of any text come back", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  CheckpointHeader header = some_header();
  for (int i = 0; i < 10000; ++i)
    header.input.classes.push_back(std::to_string(10000 + i) + std::string(75, 'x'));
  header.input.classes[0] = "two\nlines";
  header.input.classes[1] = "";
  write_checkpoint(path, header, FakeParameters(small_model()));
  CHECK(read_header(path).input.classes == header.input.classes);
}

TEST_CASE("a configuration of a megabyte, and one of any bytes, come back", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  CheckpointHeader header = some_header();
  for (const std::string& config :
       {std::string(1 << 20, 'x'), std::string("grün\0\n", 7), std::string()}) {
    header.config = config;
    write_checkpoint(path, header, FakeParameters(small_model()));
    CHECK(read_header(path).config == config);
  }
}

TEST_CASE("weights that are not finite are not saved, and named", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  FakeParameters state(small_model());
  std::vector<float> weights = state.plain(Part::weights, 1);
  weights[5] = std::numeric_limits<float>::quiet_NaN();
  state.import_slice(Part::weights, 1, weights);
  CHECK_THROWS_WITH(write_checkpoint(path, some_header(), state),
                    Contains("x.h5") && Contains("weights/conv1.weight is not finite"));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("the same state gives the same bytes", "[checkpoint]") {
  const Folder folder;
  const FakeParameters state(small_model());
  write_checkpoint(folder.path / "a.h5", some_header(), state);
  write_checkpoint(folder.path / "b.h5", some_header(), state);
  CHECK(read_text(folder.path / "a.h5") == read_text(folder.path / "b.h5"));
}

TEST_CASE("the memory of an older checkpoint leaves nothing in a newer one", "[checkpoint]") {
  const FakeParameters state(small_model());
  const auto spare = std::make_shared<h5::SpareMemory>();
  CheckpointHeader larger = some_header();
  larger.config = std::string(5 << 20, 'x');
  const std::string fresh(make_checkpoint("a.h5", some_header(), state).seal());
  const char* before = make_checkpoint("a.h5", larger, state, spare).seal().data();
  CheckpointImage again = make_checkpoint("a.h5", some_header(), state, spare);
  const std::string_view bytes = again.seal();
  CHECK(bytes.data() == before);
  CHECK(bytes == fresh);
}

TEST_CASE("a flipped bit anywhere in a checkpoint is found", "[checkpoint][slow]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string whole = read_text(path);
  CHECK_NOTHROW(verify_checkpoint(path));
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < whole.size(); at += 13) {
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ (1 << (at % 8)));
    write_file(path, altered);
    try {
      verify_checkpoint(path);
      ++accepted;
    } catch (const InputError& error) {
      if (std::string(error.what()).find("x.h5") == std::string::npos) ++accepted;
    }
  }
  CHECK(accepted == 0);
}

TEST_CASE("a truncated or prolonged checkpoint, and a text file, are errors that name it",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string whole = read_text(path);
  for (const std::size_t size :
       {whole.size() - 1, whole.size() / 2, std::size_t{600}, std::size_t{100}}) {
    write_file(path, whole.substr(0, size));
    CHECK_THROWS_WITH(read_header(path), Contains("x.h5") && Contains("torn"));
  }
  write_file(path, whole + '\0');
  CHECK_THROWS_WITH(read_header(path), Contains("torn"));
  write_file(path, "this is a text\n");
  CHECK_THROWS_WITH(read_header(path), Contains("x.h5: not a lockstep checkpoint"));
  CHECK_FALSE(looks_like_checkpoint(path));
  write_file(path, "lockstep checkpoint 1" + whole.substr(whole.find('\n')));
  CHECK_THROWS_WITH(read_header(path),
                    Contains("x.h5: has checkpoint format 1") && Contains("reads formats 2 to 7"));
  CHECK_THROWS_WITH(read_header(folder.path / "none.h5"), Contains("none.h5: No such file"));
}

TEST_CASE("a checkpoint of another model is an error that names the first different tensor",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));

  auto wider = small_model();
  wider[0].shape = {10, 4};
  FakeParameters other_shape(wider);
  CHECK_THROWS_WITH(load_tensors(path, other_shape, true),
                    Contains("x.h5: a checkpoint of another model") && Contains("fc.weight") &&
                        Contains("[3, 4]") && Contains("[10, 4]"));
  auto renamed = small_model();
  renamed[1].name = "conv2.weight";
  FakeParameters other_name(renamed);
  CHECK_THROWS_WITH(load_tensors(path, other_name, true), Contains("no tensor 'conv2.weight'"));
  auto smaller = small_model();
  smaller.erase(smaller.begin() + 1);
  FakeParameters fewer(smaller);
  CHECK_THROWS_WITH(load_tensors(path, fewer, true), Contains("'conv1.weight'"));
}

TEST_CASE("a disk that is full leaves the older checkpoint valid", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string before = read_text(path);

  // A limit on file sizes makes a write fail part of the way, as a full disk does.
  rlimit old_limit = {};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {1500, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    write_checkpoint(path, some_header(), FakeParameters(small_model(), 77));
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  CHECK_THAT(message, Contains("x.h5"));
  CHECK(read_text(path) == before);
  CHECK_NOTHROW(verify_checkpoint(path));
  const auto entries = std::filesystem::directory_iterator(folder.path);
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}
