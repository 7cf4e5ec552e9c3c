#!/usr/bin/perl
# relay.pl FROM TO DELAY_S LOSS BIT_PER_S: creates the TAP devices FROM and TO and passes frames
# between them, delayed, dropped with the given probability, and paced (0: no limit). It replaces
# netem on kernels without it.
use strict; use Time::HiRes qw(clock_gettime);
my ($from, $to) = splice @ARGV, 0, 2;
my ($delay, $loss, $rate) = map { $_ + 0 } @ARGV;   # s, fraction, bit/s
sub tap { open(my $f, "+<", "/dev/net/tun") or die "/dev/net/tun: $!\n";
  ioctl($f, 0x400454ca, pack("a16 S x22", $_[0], 0x1002)) or die "TUNSETIFF $_[0]: $!\n";
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
  next unless select($r, undef, undef, $t) > 0;
  $now = clock_gettime(1);
  for my $d (0, 1) {
    next unless vec($r, fileno($f[$d]), 1);
    for (1 .. 64) {
      my $n = sysread($f[$d], my $p, 65536) or last;
      next if $loss && rand() < $loss;
      my $due = $now;
      if ($rate) {
        $free[$d] = $now if $free[$d] < $now;
        next if $free[$d] - $now > 0.1;     # the queue is full
        $due = $free[$d] += $n * 8 / $rate;
      }
      push @{$q[$d]}, [$due + $delay, $p];
    }
  }
}
