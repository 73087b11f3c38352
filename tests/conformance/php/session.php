<?php
// What PHP's session handler and its client of memcached, as packaged, ask of a memcached server, asked of the one at HOST PORT,
// and with a USER and a PASSWORD logged in by SASL.

[, $host, $port] = $argv;
$user = $argv[3] ?? null;
$password = $argv[4] ?? null;
$failed = false;
// A session starts only before any output.
ob_start();

function check($what, $got, $expected) {
    global $failed;
    if ($got === $expected) {
        echo "ok - $what\n";
        return;
    }
    $failed = true;
    echo "not ok - $what: expected ", json_encode($expected), ", got ", json_encode($got), "\n";
}

function sessions() {
    global $host, $port, $user, $password;
    ini_set('session.save_handler', 'memcached');
    ini_set('session.save_path', "$host:$port");
    ini_set('session.use_cookies', '0');
    ini_set('session.cache_limiter', '');
    if ($user !== null) {
        ini_set('memcached.sess_sasl_username', $user);
        ini_set('memcached.sess_sasl_password', $password);
    }
    check('the session handler speaks the binary protocol', ini_get('memcached.sess_binary_protocol'), '1');
    $id = 'session' . getmypid();
    for ($request = 1; $request <= 3; $request++) {
        session_id($id);
        check("session of request $request", session_start(), true);
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        check("count of request $request", $_SESSION['n'], $request);
        check("end of request $request", session_write_close(), true);
    }
    session_id($id);
    session_start();
    check('end of the session', session_destroy(), true);
    session_id($id);
    session_start();
    check('a new session is empty', $_SESSION, []);
    session_write_close();
}

function client() {
    global $host, $port, $user, $password;
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
    if ($user !== null) {
        $client->setSaslAuthData($user, $password);
    }
    $client->addServer($host, (int)$port);
    check('flush', $client->flush(), true);
    check('set', $client->set('a', '1'), true);
    check('get', $client->get('a'), '1');
    check('get of nothing', [$client->get('none'), $client->getResultCode()], [false, Memcached::RES_NOTFOUND]);
    check('add', [$client->add('a', '2'), $client->add('b', ['x' => 1.5])], [false, true]);
    check('an object', $client->get('b'), ['x' => 1.5]);
    check('replace', [$client->replace('a', '3'), $client->replace('none', '3')], [true, false]);
    $client->setOption(Memcached::OPT_COMPRESSION, false);
    check('append', [$client->append('a', '+'), $client->prepend('a', '-'), $client->get('a')], [true, true, '-3+']);
    check('delete', [$client->delete('a'), $client->delete('a')], [true, false]);
    check('increment', [$client->increment('n', 2, 5), $client->increment('n', 2), $client->decrement('n', 100)], [5, 7, 0]);
    check('touch', [$client->touch('n', 100), $client->touch('none', 100)], [true, false]);
    $values = [];
    for ($number = 0; $number < 500; $number++) {
        $values["many-$number"] = str_repeat('x', $number);
    }
    check('setMulti', $client->setMulti($values), true);
    check('getMulti', $client->getMulti([...array_keys($values), 'none']), $values);
    $found = $client->get('many-1', null, Memcached::GET_EXTENDED);
    check('cas', $client->cas($found['cas'], 'many-1', 'y'), true);
    check('cas of what was changed', [$client->cas($found['cas'], 'many-1', 'z'), $client->get('many-1')], [false, 'y']);
    check('the largest value', $client->set('large', str_repeat('x', 1 << 20)), true);
    check('one byte more', [$client->set('large', str_repeat('x', (1 << 20) + 1)), $client->getResultCode()], [false, Memcached::RES_E2BIG]);
    check('the connection still works', $client->get('many-2'), 'xx');
    check('stats', is_array($client->getStats()), true);
    check('version', count($client->getVersion()), 1);
}

sessions();
client();
exit($failed ? 1 : 0);
