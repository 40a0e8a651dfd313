#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0 OR MIT
# For scripts/kmod-patch: writes the comments of a file as the kernel's style has them. In a comment of several lines, the first
# and the last line have no text; no such comment is behind code; and no line is longer than the argument says, in bytes.
use strict;
use warnings;

my $MAX = shift;

sub width {
	my ($text) = @_;
	1 while $text =~ s/^([^\t]*)(\t+)/$1 . " " x (8 * length($2) - length($1) % 8)/e;
	return length $text;
}

# Begins an item of a list: a name or number of an invariant, a parameter of a function, or a column of a table.
sub is_item {
	return $_[0] =~ /^\s*(@[\w.]+:|[A-Z]+\d+\s\s|\S+\s{2,}\S|[-\d]\s)/;
}

# Breaks lines that are too long. The rest goes to the next line, where that continues the paragraph, or else to a new line.
sub wrapped {
	my ($indent, @lines) = @_;
	my @out;
	while (@lines) {
		my $line = shift @lines;
		if (width("$indent * $line") <= $MAX) {
			push @out, $line;
			next;
		}
		my ($own) = $line =~ /^(\s*)/;
		my $next = @lines ? $lines[0] : "";
		my ($following) = $next =~ /^(\s*)/;
		my $hangs = is_item($line) ? length($following) > length($own) : $following eq $own;
		my $continues = $next ne "" && $hangs && !is_item($next);
		my ($hang) = $continues ? $following : $line =~ /^\s*@/ ? "\t" : is_item($line) ? "$own    " : $own;
		my @words = split / /, $line;
		my $kept = shift @words;
		while (@words && width("$indent * $kept $words[0]") <= $MAX) {
			$kept .= " " . shift @words;
		}
		push @out, $kept;
		next unless @words;
		my $rest = join " ", @words;
		if ($continues) {
			$lines[0] = $hang . $rest . " " . substr $next, length $following;
		} else {
			unshift @lines, $hang . $rest;
		}
	}
	return @out;
}

sub comment {
	my ($before, $stars, $text) = @_;
	my ($indent) = $before =~ /^(\s*)/;
	my $code = $before =~ /\S/ ? $before =~ s/\s+$//r : "";
	my $is_long = $text =~ /\n/ || width("$before/*$text*/") > $MAX;
	return "$before/$stars$text*/" unless $is_long;
	my @lines = map { s/^\s*\*? ?//r =~ s/\s+$//r } split /\n/, " *$text";
	shift @lines while @lines && $lines[0] eq "";
	pop @lines while @lines && $lines[-1] eq "";
	@lines = wrapped($indent, @lines);
	return join("\n", "$indent/$stars", (map { $_ eq "" ? "$indent *" : $_ =~ /^\t/ ? "$indent *$_" : "$indent * $_" } @lines), "$indent */")
		. ($code eq "" ? "" : "\n$code");
}

local $/;
my $file = <STDIN>;
$file =~ s{^([^\n]*?)/(\*\*?)(?![*/])((?:(?!\*/).)*)\*/(?=[ \t]*$)}{comment($1, $2, $3)}gems;
print $file;
