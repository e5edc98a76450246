-- Interface mistakes of training answers by kind and epoch, per graded answer.
SELECT epoch + 1 AS epoch, kind, n AS mistakes, n / answers AS per_answer
FROM (SELECT epoch, kind, count(*) AS n FROM interface_mismatches WHERE run = $run AND purpose = 'train' GROUP BY epoch, kind)
JOIN (SELECT epoch, count(*) AS answers FROM verdicts WHERE run = $run AND purpose = 'train' GROUP BY epoch) USING (epoch)
ORDER BY epoch, mistakes DESC, kind
