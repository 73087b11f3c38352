<?php
// Reads keys from the memcached at HOST PORT as an application does: a missed value is computed, which takes MS, and stored on a
// connection of its own, as libraries do that read and write on different ones.
[, $host, $port, $ms] = $argv;
[$reads, $writes] = [new Memcached(), new Memcached()];
$reads->addServer($host, (int) $port);
$writes->addServer($host, (int) $port);
$writes->get('warm');
foreach (range(0, 7) as $number) {
    if ($reads->get("k$number") === false) {
        usleep((int) $ms * 1000);
        $writes->set("k$number", 'value', 60);
    }
}
$values = array_map(fn ($number) => $reads->get("k$number"), range(0, 7));
echo $values === array_fill(0, 8, 'value') ? "ok - all values\n" : 'not ok - ' . json_encode($values) . "\n";
