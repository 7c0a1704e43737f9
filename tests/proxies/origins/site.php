<?php
// A site that reads addresses in as many ways as applications in PHP do: as they are spelt, and
// decoded again and again, cut at ; in each part, with \ for /, its dots followed.
$spelt = strtok($_SERVER['REQUEST_URI'], '?');
for ($path = $spelt; $path !== rawurldecode($path); $path = rawurldecode($path));
$path = str_replace(["\xc0\xae", '%u002e', '\\'], ['.', '.', '/'], $path);
$parts = [];
foreach (explode('/', $path) as $part) {
    $part = explode(';', $part)[0];
    if ($part === '..') {
        array_pop($parts);
    } elseif ($part !== '' && $part !== '.') {
        $parts[] = $part;
    }
}
echo $parts === ['cart'] || str_starts_with($spelt, '/cart') ? 'the cart' : 'another page';
