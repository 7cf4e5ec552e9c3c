#!/usr/bin/perl
# relay.pl FROM TO DELAY_S LOSS BIT_PER_S: creates the TAP devices FROM and TO and passes frames
# between them, delayed, dropped with the given probability, and paced (0: no limit). It replaces
# netem on kernels without it. Without loss it takes up to 64 kB of a connection at once, so that it
# can pass gigabits a second; each such packet counts as the frames that it would be on the wire. A
# process on a busy machine wakes late: it learns how late, and lets frames go that much earlier.
use strict; use Time::HiRes qw(clock_gettime);
my ($from, $to) = splice @ARGV, 0, 2;
my ($delay, $loss, $rate) = map { $_ + 0 } @ARGV;   # s, fraction, bit/s
my ($whole, $late) = (!$loss, 20e-6);               # $late: of a wake-up, in s
my $own = 12e-6;                                    # what passing a frame takes
sub wire { my ($n, $p) = @_; return $n unless $whole; $n -= 10;     # virtio's header
  my $each = unpack("x4 S", $p); return $n unless $each;
  return $n + 66 * (int(($n - 66 + $each - 1) / $each) - 1) }
sub tap { open(my $f, "+<", "/dev/net/tun") or die "/dev/net/tun: $!\n";
  ioctl($f, 0x400454ca, pack("a16 S x22", $_[0], $whole ? 0x5002 : 0x1002)) or
    die "TUNSETIFF $_[0]: $!\n";
  !$whole or ioctl($f, 0x400454d0, 7) or die "TUNSETOFFLOAD $_[0]: $!\n";   # checksums, TCP
  fcntl($f, 4, 2048) or die; return $f }          # F_SETFL O_NONBLOCK
my @f = (tap($from), tap($to)); my @q = ([], []); my @free = (0, 0);
while (1) {
  my ($now, $t) = (clock_gettime(1));
  for my $d (0, 1) {
    while (@{$q[$d]} && $q[$d][0][0] <= $now) { syswrite($f[1 - $d], (shift @{$q[$d]})->[1]) }
    next unless @{$q[$d]};
    my $w = $q[$d][0][0] - $now; $t = $w if !defined $t || $w < $t;
  }
  my $r = ""; vec($r, fileno($_), 1) = 1 for @f;
  my $ready = select($r, undef, undef, defined $t ? ($t > $late ? $t - $late : 0) : $t);
  my $planned = $now + ($t // 0) - $late; $now = clock_gettime(1);
  if ($ready <= 0) {
    $late += 0.05 * (($now - $planned < 200e-6 ? $now - $planned : 200e-6) - $late)
      if $now > $planned && $t > $late;
    next;
  }
  for my $d (0, 1) {
    next unless vec($r, fileno($f[$d]), 1);
    for (1 .. 64) {
      my $n = sysread($f[$d], my $p, 131072) or last;
      next if $loss && rand() < $loss;
      my $due = $now;
      if ($rate) {
        $free[$d] = $now if $free[$d] < $now;
        next if $free[$d] - $now > ($loss ? 0.1 : 5);     # the queue is full
        $due = $free[$d] += wire($n, $p) * 8 / $rate;
      }
      push @{$q[$d]}, [$due + $delay - $late - $own, $p];
    }
  }
}
