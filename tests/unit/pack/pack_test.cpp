#include "pack/packer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/pack/source/shapes.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Source> shapes(std::size_t training, std::size_t validation) {
  ShapesSpec spec;
  spec.training_rows = training;
  spec.validation_rows = validation;
  return make_shapes(spec);
}

/// Class folders: 6 images of "cat", 6 of "dog", all 8 x 8.
fs::path make_class_folders(const fs::path& folder) {
  for (const char* name : {"cat", "dog"})
    for (int i = 0; i < 6; ++i) {
      Image image = picture(8, 8, 3);
      image.pixels[0] = static_cast<std::uint8_t>(i);
      write_file(folder / name / (std::to_string(i) + ".png"), png_of(image));
    }
  return folder;
}

}  // namespace

TEST_CASE("every row goes to exactly one shard, and splits keep apart", "[pack]") {
  const auto source = shapes(1000, 333);
  PackSpec spec;
  spec.rows_per_shard = GENERATE(1, 7, 100, 5000);
  const std::vector<ShardPlan> plan = plan_shards(*source, spec, 3072);
  std::vector<std::size_t> training, validation;
  for (const ShardPlan& shard : plan) {
    CHECK(!shard.rows.empty());
    CHECK(shard.rows.size() <= spec.rows_per_shard);
    auto& rows = shard.training ? training : validation;
    rows.insert(rows.end(), shard.rows.begin(), shard.rows.end());
  }
  CHECK_FALSE(std::is_sorted(training.begin(), training.end()));
  std::sort(training.begin(), training.end());
  std::sort(validation.begin(), validation.end());
  REQUIRE(training.size() == 1000);
  REQUIRE(validation.size() == 333);
  for (std::size_t i = 0; i < 1000; ++i) REQUIRE(training[i] == i);
  for (std::size_t i = 0; i < 333; ++i) REQUIRE(validation[i] == 1000 + i);
}

TEST_CASE("shards are few, even, and under 256 MB", "[pack]") {
  const auto source = shapes(50000, 10);
  const auto training_shards = [&](std::size_t row_bytes) {
    std::vector<std::size_t> sizes;
    for (const ShardPlan& shard : plan_shards(*source, PackSpec{}, row_bytes))
      if (shard.training) sizes.push_back(shard.rows.size());
    CHECK(*std::max_element(sizes.begin(), sizes.end()) -
              *std::min_element(sizes.begin(), sizes.end()) <=
          1);
    CHECK(sizes[0] * row_bytes <= 256'000'000);
    return sizes.size();
  };
  CHECK(training_shards(3072) == 8);
  CHECK(training_shards(224 * 224 * 3) == 30);
  CHECK(plan_shards(*source, PackSpec{}, 3072).back().file == "val/val-00000-of-00001.h5");
}

TEST_CASE("the held-out rows are a share of every class, and a seed's own choice", "[pack]") {
  const auto source = shapes(205, 0);
  const auto held_out = [&](double share, std::uint64_t seed) {
    PackSpec spec;
    spec.held_out = share;
    spec.seed = seed;
    std::vector<std::size_t> rows;
    std::size_t all = 0;
    for (const ShardPlan& shard : plan_shards(*source, spec, 3072)) {
      all += shard.rows.size();
      if (!shard.training) rows.insert(rows.end(), shard.rows.begin(), shard.rows.end());
    }
    CHECK(all == 205);
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  const std::vector<std::size_t> rows = held_out(0.2, 1);
  std::vector<std::size_t> count(10);
  for (const std::size_t row : rows) ++count[row % 10];
  CHECK(count == std::vector<std::size_t>(10, 4));  // of 20 or 21
  CHECK(held_out(0.2, 1) == rows);
  CHECK(held_out(0.2, 2) != rows);
  CHECK(held_out(0, 1).empty());
  CHECK(held_out(0.99, 1).size() == 195);  // each class keeps a row to train on
}

TEST_CASE("a held-out share that gives no row is said, with one that does", "[pack]") {
  const auto said = [](std::size_t rows, double share) {
    const auto source = shapes(rows, 0);
    PackSpec spec;
    spec.held_out = share;
    return say_not_held_out(*source, spec, plan_shards(*source, spec, 3072));
  };
  CHECK(said(30, 0.1) ==
        "no validation set: 10 % of the rows of each class is less than half a row; give "
        "--held-out 0.17 or more, or --val");
  CHECK(said(30, 0.17).empty());
  CHECK(said(100, 0.1).empty());
  CHECK(said(30, 0).empty());
  CHECK_THAT(said(10, 0.5), Catch::Contains("no class has two"));
  CHECK_THAT(said(15, 0.5), Catch::Contains("5 of 10 classes have too few images to hold one"));
}

TEST_CASE("any number of ranks writes the same bytes", "[pack]") {
  const Folder folder;
  const auto source = shapes(300, 50);
  PackSpec spec;
  spec.rows_per_shard = 40;
  pack_as(1, *source, spec, folder.path / "one");
  const auto one = contents(folder.path / "one");
  CHECK(one.size() == 10);
  for (const std::size_t ranks : {2, 5}) {
    const fs::path out = folder.path / std::to_string(ranks);
    pack_as(ranks, *source, spec, out);
    CHECK(contents(out) == one);
  }
}

TEST_CASE("packed rows are the source's, with the training rows' mean and deviation", "[pack]") {
  const Folder folder;
  const auto source = shapes(60, 20);
  pack_as(2, *source, PackSpec{}, folder.path / "out");
  const DataSet training(folder.path / "out/train"), validation(folder.path / "out/val");
  REQUIRE(training.info().rows == 60);
  REQUIRE(validation.info().rows == 20);
  std::multimap<std::vector<std::uint8_t>, std::int32_t> want, got;
  for (std::size_t row = 0; row < 60; ++row)
    want.emplace(source->read(row).pixels, source->label(row));
  std::vector<double> sum(3), squares(3);
  for (std::size_t row = 0; row < 60; ++row) {
    std::vector<std::uint8_t> image(training.info().row_bytes());
    training.read(row, image);
    for (std::size_t i = 0; i < image.size(); ++i) {
      sum[i % 3] += image[i] / 255.0;
      squares[i % 3] += image[i] / 255.0 * image[i] / 255.0;
    }
    got.emplace(image, training.labels()[row]);
  }
  CHECK(got == want);
  const double n = 60 * 32 * 32;
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(training.info().mean[c] == Approx(sum[c] / n));
    CHECK(training.info().stddev[c] == Approx(std::sqrt(squares[c] / n - sum[c] / n * sum[c] / n)));
  }
  CHECK(validation.info().mean == training.info().mean);
  CHECK(validation.info().stddev == training.info().stddev);
}

TEST_CASE("the deviation of a constant channel is 1", "[pack]") {
  ChannelSums sums(DataSetInfo{.channels = 2});
  sums.add(std::vector<std::uint8_t>{200, 0, 200, 255});
  CHECK(sums.mean()[0] == Approx(200 / 255.0));
  CHECK(sums.stddev()[0] == 1);
  CHECK(sums.mean()[1] == 0.5f);
  CHECK(sums.stddev()[1] == 0.5f);
}

TEST_CASE("sums are exact for images of any size", "[pack]") {
  for (const std::size_t channels : {1, 2, 3})
    for (const std::size_t pixels : {1, 15, 16, 17, 1000, 65'536 * 16 + 33}) {
      std::vector<std::uint8_t> image(pixels * channels, 255);
      image[image.size() - 1] = 7;
      ChannelSums sums(DataSetInfo{.channels = channels});
      sums.add(image);
      std::vector<std::uint64_t> want;
      for (std::size_t c = 0; c < channels; ++c) {
        const std::uint64_t lost = c + 1 == channels ? 255 - 7 : 0;
        const std::uint64_t squares_lost = c + 1 == channels ? 255 * 255 - 7 * 7 : 0;
        want.insert(want.end(), {pixels, 0, pixels * 255 - lost, 0,
                                 pixels * 255 * 255 - squares_lost, 0, 0, 0});
      }
      CHECK(sums.words() == want);
    }
}

TEST_CASE("unreadable images stop a pack with their names, or are skipped and listed", "[pack]") {
  const Folder folder;
  const fs::path images = make_class_folders(folder.path / "images");
  const std::string broken = png_of(picture(8, 8, 3)).substr(0, 60);
  write_file(images / "cat/0.png", broken);
  write_file(images / "dog/3.png", "no image at all");
  const auto source = open_class_folders(images);
  PackSpec spec;
  spec.rows_per_shard = GENERATE(4, 12);
  CHECK_THROWS_WITH(pack_as(1, *source, spec, folder.path / "out"), Contains("cat/0.png: broken"));
  CHECK_FALSE(fs::exists(folder.path / "out"));
  spec.skip_bad = true;
  CHECK(pack_as(1, *source, spec, folder.path / "out").skipped.size() == 2);
  const DataSet training(folder.path / "out/train");
  CHECK(training.info().rows == 10);
  CHECK(std::count(training.labels().begin(), training.labels().end(), 0) == 5);
  CHECK(pack_as(3, *source, spec, folder.path / "again").skipped.size() == 2);
  CHECK(contents(folder.path / "again") == contents(folder.path / "out"));
  for (const char* name : {"cat", "dog"})
    for (int i = 0; i < 6; ++i) write_file(images / name / (std::to_string(i) + ".png"), broken);
  CHECK_THROWS_WITH(packed_info(*source, spec), Contains("none of the 12 images is readable"));
}

TEST_CASE("what is skipped does not depend on how rows fall into shards", "[pack]") {
  const Folder folder;
  const fs::path images = make_class_folders(folder.path / "images");
  for (int i = 0; i < 6; ++i) write_file(images / "cat" / (std::to_string(i) + ".png"), "broken");
  const auto source = open_class_folders(images);
  PackSpec spec;
  spec.skip_bad = true;
  spec.rows_per_shard = GENERATE(1, 2, 12);
  CHECK(pack_as(2, *source, spec, folder.path / "out").skipped.size() == 6);
  // A shard of which all is skipped is not written.
  CHECK(DataSet(folder.path / "out/train/*.h5").info().rows == 6);
}

TEST_CASE("images of several sizes are an error that names one unless they are resized", "[pack]") {
  const Folder folder;
  const fs::path images = make_class_folders(folder.path / "images");
  write_file(images / "dog/5.png", png_of(picture(9, 8, 1)));
  const auto source = open_class_folders(images);
  PackSpec spec;
  spec.skip_bad = GENERATE(false, true);  // another size is not damage
  CHECK_THROWS_WITH(pack_as(1, *source, spec, folder.path / "out"),
                    Contains("dog/5.png: is 9 x 8") && Contains("--resize"));
  CHECK_FALSE(fs::exists(folder.path / "out"));
  spec.height = 6;
  spec.width = 5;
  spec.channels = GENERATE(0, 1);
  pack_as(1, *source, spec, folder.path / "out");
  const DataSet training(folder.path / "out/train");
  CHECK(training.info().rows == 12);
  CHECK(training.info().height == 6);
  CHECK(training.info().width == 5);
  CHECK(training.info().channels == (spec.channels == 1 ? 1 : 3));
}

TEST_CASE("a data set is replaced only on request, and nothing else ever is", "[pack]") {
  const Folder folder;
  const fs::path out = folder.path / "out";
  const auto source = shapes(20, 10);
  pack_as(1, *source, PackSpec{}, out);
  const auto before = contents(out);
  CHECK_THROWS_WITH(PackFolder(out, false), Contains("train: exists already"));
  { const PackFolder given_up(out, true); }
  CHECK(contents(out) == before);
  {
    PackFolder again(out, true);
    write_file(PackFolder::partial(out) / "train/new.h5", "new");
    again.commit();
  }
  CHECK(contents(out) == std::map<std::string, std::string>{{"train/new.h5", "new"}});
  write_file(out / "train/holiday.jpg", "mine");
  CHECK_THROWS_WITH(PackFolder(out, true), Contains("holiday.jpg: is not a shard"));
}

TEST_CASE("a finished shard is kept by the same plan, and by no other", "[pack]") {
  const Folder folder;
  const fs::path out = folder.path / "out", partial = PackFolder::partial(out);
  const ShardPlan shard{"train/train-00000-of-00002.h5", true, {3, 1, 2}};
  const DataSetInfo two{.channels = 2};
  FinishedShard finished{2, 70, ChannelSums(two), {{1, "cat/1.jpg: a broken  one"}}};
  finished.sums.add(std::vector<std::uint8_t>{200, 0, 255, 1});
  {
    PackFolder first(out, false, "seed = 1\n");
    CHECK_FALSE(first.resume("images = 3\n"));
    CHECK_FALSE(read_note(partial, shard, two).has_value());
    write_note(partial, shard, finished);
    CHECK_FALSE(read_note(partial, shard, two).has_value());  // there is a note, but no shard
    write_file(partial / shard.file, "shard");
    write_file(partial / "train/train-00001-of-00002.h5.tmp17-0", "half of one");
  }
  const auto before = contents(out);
  CHECK_THROWS_WITH(PackFolder(out, false, "seed = 2\n"),
                    Contains("an interrupted pack left 1 finished shard there, for which it had "
                             "\"seed = 1\" where this one has \"seed = 2\""));
  {
    PackFolder other(out, false, "seed = 1\n");
    CHECK_THROWS_WITH(other.resume("images = 4\n"), Contains("\"images = 3\" where"));
  }
  {
    PackFolder again(out, false, "seed = 1\n");
    CHECK(again.resume("images = 3\n"));
    CHECK(names_in(partial / "train") == std::vector<std::string>{"train-00000-of-00002.h5"});
    const auto note = read_note(partial, shard, two);
    REQUIRE(note.has_value());
    CHECK(note->rows == 2);
    CHECK(note->bytes == 70);
    CHECK(note->sums.words() == finished.sums.words());
    REQUIRE(note->skipped.size() == 1);
    CHECK(note->skipped[0].row == 1);
    CHECK(note->skipped[0].reason == "cat/1.jpg: a broken  one");
    fs::rename(partial / "done/train-00000-of-00002.hashes", folder.path / "away");
    CHECK_FALSE(read_note(partial, shard, two).has_value());  // an older pack's
    fs::rename(folder.path / "away", partial / "done/train-00000-of-00002.hashes");
    write_file(partial / "done/train-00000-of-00002.txt", "rows 2\nbytes 70\npix");
    CHECK_THROWS_WITH(read_note(partial, shard, two), Contains("00002.txt: is damaged"));
  }
  {
    PackFolder fresh(out, true, "seed = 2\n");
    CHECK_FALSE(fresh.resume("images = 3\n"));
    CHECK(names_in(partial / "train").empty());
  }
  CHECK(names_in(out).empty());
}

TEST_CASE("a commit that is interrupted is completed, whatever it had done", "[pack]") {
  const Folder folder;
  const fs::path out = folder.path / "out", partial = PackFolder::partial(out);
  const std::size_t moved = GENERATE(0, 1, 2);
  write_file(out / "train/old.h5", "old");
  write_file(out / "val/old.h5", "old");
  {
    PackFolder pack(out, true, "seed = 1\n");
    pack.resume("");
    write_file(partial / "train/new.h5", "new");
    write_file(partial / "done/new.txt", "so that it stays");
    write_file(partial / "skipped.txt", "one\n");
    write_file(partial / "complete", "");
  }
  if (moved > 0) fs::rename(out / "train", partial / "old-train");
  if (moved > 1) fs::rename(partial / "train", out / "train");
  {
    const PackFolder again(out, false, "seed = 1\n");
    CHECK(again.was_complete());
  }
  CHECK(contents(out) ==
        std::map<std::string, std::string>{{"train/new.h5", "new"}, {"skipped.txt", "one\n"}});
}

TEST_CASE("two packs do not write to one folder, and one that is overtaken ends", "[pack]") {
  const Folder folder;
  const fs::path out = folder.path / "out", next = PackFolder::partial(out) / "claims/0.1";
  {
    PackFolder first(out, false);
    CHECK_THROWS_WITH(PackFolder(out, false), Contains("another pack is writing"));
    first.require_own();
    write_file(next, "");
    CHECK_THROWS_WITH(first.commit(), Contains("another pack has taken this over"));
  }
  CHECK(fs::exists(next));
}
